//! What the catalogue says about a table.

use crate::layout::{Column, Table, backticked};
use crate::mysql::session::Session;
use crate::mysql::triggers::{self, Trigger};
use sqlx::{Error, Row as _};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A table, where it is, and how its columns are declared.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) table: Table,
    pub(super) database: String,
    pub(super) name: String,
    pub(super) engine: String,
    /// The columns that the server writes at every UPDATE.
    pub(super) touched: HashSet<String>,
    /// Type, character set and collation of each column, as a CREATE TABLE says them.
    pub(super) declared: HashMap<String, String>,
}

/// Texts are converted: MySQL 8 gives some columns of its catalogue as bytes.
const FIND: &str = "
    SELECT CONVERT(TABLE_NAME USING utf8mb4), CONVERT(COALESCE(ENGINE, '') USING utf8mb4)
    FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND TABLE_TYPE = 'BASE TABLE'";
const COLUMNS: &str = "
    SELECT CONVERT(COLUMN_NAME USING utf8mb4), CONVERT(DATA_TYPE USING utf8mb4),
           CONVERT(COLUMN_TYPE USING utf8mb4), CONVERT(CHARACTER_SET_NAME USING utf8mb4),
           CONVERT(COLLATION_NAME USING utf8mb4), IS_NULLABLE = 'NO',
           COLUMN_DEFAULT IS NOT NULL OR EXTRA <> '',
           LOCATE('on update', LOWER(EXTRA)) > 0,
           CAST(LEAST(CHARACTER_MAXIMUM_LENGTH, 2147483647) AS SIGNED)
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION";
/// Of an index on a part of a column, or on an expression, no column is named.
const INDEXES: &str = "
    SELECT CONVERT(INDEX_NAME USING utf8mb4), NON_UNIQUE = 0,
           CONVERT(IF(SUB_PART IS NULL, COLUMN_NAME, NULL) USING utf8mb4)
    FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY INDEX_NAME, SEQ_IN_INDEX";
const IS_PARTITIONED: &str = "
    SELECT EXISTS (SELECT 1 FROM information_schema.PARTITIONS
                   WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND PARTITION_NAME IS NOT NULL)";

/// The database and the name of a table, by its name in a layout.
pub(super) fn place<'a>(table: &'a str, database: &'a str) -> (String, String) {
    let (database, name) = table.split_once('.').unwrap_or((database, table));
    let plain = |name: &str| name.trim_matches(['`', '"']).to_owned();
    (plain(database), plain(name))
}

/// The table of this name, which is in `database` unless it says otherwise.
pub(super) async fn find(
    connection: &mut Session,
    table: &str,
    database: &str,
) -> Result<Option<Found>, Error> {
    let (database, name) = place(table, database);
    let of_table = |sql| sqlx::query(sql).bind(database.clone()).bind(name.clone());
    let Some(row) = of_table(FIND).fetch_optional(&mut *connection).await? else {
        return Ok(None);
    };
    let (found, engine): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let is_partitioned = of_table(IS_PARTITIONED).fetch_one(&mut *connection).await?.try_get(0)?;
    let mut table = Table {
        name: format!("{}.{}", backticked(&database), backticked(&found)),
        columns: Vec::new(),
        primary_key: Vec::new(),
        unique: Vec::new(),
        indexed: Vec::new(),
        has_partial_index: false,
        is_partitioned,
        ignores_case: true,
        triggers: Vec::new(),
    };
    let (mut declared, mut touched) = (HashMap::new(), HashSet::new());
    for row in of_table(COLUMNS).fetch_all(&mut *connection).await? {
        let column: String = row.try_get(0)?;
        let mut whole: String = row.try_get(2)?;
        let (set, collation): (Option<String>, Option<String>) = (row.try_get(3)?, row.try_get(4)?);
        if let (Some(set), Some(collation)) = (set, &collation) {
            whole.push_str(&format!(" CHARACTER SET {set} COLLATE {collation}"));
        }
        declared.insert(column.clone(), whole);
        if row.try_get(7)? {
            touched.insert(column.clone());
        }
        table.columns.push(Column {
            name: column,
            kind: row.try_get(1)?,
            collation,
            is_required: row.try_get(5)?,
            has_default: row.try_get(6)?,
            length: row.try_get::<Option<i64>, _>(8)?.and_then(|most| i32::try_from(most).ok()),
        });
    }
    let mut indexes: BTreeMap<String, (bool, Vec<Option<String>>)> = BTreeMap::new();
    for row in of_table(INDEXES).fetch_all(&mut *connection).await? {
        let index = indexes.entry(row.try_get(0)?).or_default();
        index.0 = row.try_get(1)?;
        index.1.push(row.try_get(2)?);
    }
    for (name, (is_unique, columns)) in indexes {
        table.indexed.extend(columns.first().cloned().flatten());
        let whole: Option<Vec<String>> = columns.into_iter().collect();
        match whole {
            Some(columns) if name == "PRIMARY" => table.primary_key = columns,
            Some(columns) if is_unique => table.unique.push(columns),
            Some(_) | None => {}
        }
    }
    Ok(Some(Found { table, database, name: found, engine, touched, declared }))
}

/// Whether a table has this trigger. One of that name may be another table's, since a table that is renamed keeps its
/// triggers. The information schema shows triggers only to those who may make them, which a relay may not: to it, one
/// that is there counts. By schema and table: otherwise the server opens every table that it has.
pub(super) async fn has_trigger(
    connection: &mut Session,
    database: &str,
    table: &str,
    name: &str,
) -> Result<bool, Error> {
    const OF_TABLE: &str = "SELECT EXISTS (SELECT 1 FROM information_schema.TRIGGERS \
         WHERE EVENT_OBJECT_SCHEMA = ? AND EVENT_OBJECT_TABLE = ? AND TRIGGER_NAME = ?)";
    let shown = sqlx::query_scalar(OF_TABLE).bind(database).bind(table).bind(name);
    if shown.fetch_one(&mut *connection).await? {
        return Ok(true);
    }
    let place = format!("{}.{}", backticked(database), backticked(name));
    Ok(triggers::find(connection, &place).await? == Trigger::Hidden)
}
