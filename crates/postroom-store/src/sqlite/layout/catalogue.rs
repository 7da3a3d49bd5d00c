//! What the catalogue says about a table.

use crate::layout::{Column, Dialect, Table, quoted};
use sqlx::{Error, Row as _, SqliteConnection};

/// A table, and the name of its rowid, if it has one.
pub(super) struct Found {
    pub(super) table: Table,
    pub(super) rowid: Option<&'static str>,
}

const FIND: &str =
    "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
const COLUMNS: &str = "SELECT name, type, \"notnull\", dflt_value IS NOT NULL, pk FROM pragma_table_info(?1) ORDER BY cid";
const INDEXES: &str = "SELECT name, \"unique\", partial FROM pragma_index_list(?1)";
const INDEX_COLUMNS: &str = "SELECT name FROM pragma_index_info(?1) ORDER BY seqno";
const TRIGGERS: &str =
    "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE";
/// Every row has one of these, unless columns have taken them all.
const ROWIDS: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// The table of this name.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<Option<Found>, Error> {
    let plain = Dialect::Sqlite.plain_name(name);
    let Some(row) = sqlx::query(FIND).bind(&plain).fetch_optional(&mut *connection).await? else {
        return Ok(None);
    };
    let (name, sql): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut table = Table {
        name: quoted(&name),
        columns: Vec::new(),
        primary_key: Vec::new(),
        unique: Vec::new(),
        indexed: Vec::new(),
        has_partial_index: false,
        is_partitioned: false,
        ignores_case: false,
        triggers: sqlx::query_scalar(TRIGGERS).bind(&name).fetch_all(&mut *connection).await?,
    };
    let mut key: Vec<(i64, String)> = Vec::new();
    for row in sqlx::query(COLUMNS).bind(&name).fetch_all(&mut *connection).await? {
        let column: String = row.try_get(0)?;
        let place: i64 = row.try_get(4)?;
        let kind: String = row.try_get(1)?;
        if place > 0 {
            key.push((place, column.clone()));
        }
        // A number that is the whole key is drawn by the database.
        let is_drawn = place > 0 && kind.eq_ignore_ascii_case("INTEGER");
        table.columns.push(Column {
            name: column,
            kind,
            collation: None,
            is_required: row.try_get(2)?,
            has_default: row.try_get::<bool, _>(3)? || is_drawn,
            length: None,
        });
    }
    key.sort_unstable();
    table.primary_key = key.into_iter().map(|(_, name)| name).collect();
    table.indexed.extend(table.primary_key.first().cloned());
    for row in sqlx::query(INDEXES).bind(&name).fetch_all(&mut *connection).await? {
        let index: String = row.try_get(0)?;
        let columns: Vec<Option<String>> =
            sqlx::query_scalar(INDEX_COLUMNS).bind(index).fetch_all(&mut *connection).await?;
        let is_partial: bool = row.try_get(2)?;
        table.has_partial_index |= is_partial;
        // An expression has no name.
        table.indexed.extend(columns.first().cloned().flatten());
        if row.try_get::<bool, _>(1)? && !is_partial {
            table.unique.extend(columns.into_iter().collect::<Option<Vec<_>>>());
        }
    }
    let is_taken = |name: &str| table.columns.iter().any(|one| one.name.eq_ignore_ascii_case(name));
    let has_rowid = !has_no_rowid(&sql);
    let rowid = ROWIDS.into_iter().find(|name| has_rowid && !is_taken(name));
    Ok(Some(Found { table, rowid }))
}

/// Whether a table was made WITHOUT ROWID: that stands behind its columns.
fn has_no_rowid(sql: &str) -> bool {
    let options = sql.rfind(')').map_or("", |at| &sql[at..]);
    let words = options.split(|c: char| !c.is_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .any(|two| two[0].eq_ignore_ascii_case("without") && two[1].eq_ignore_ascii_case("rowid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_table_stand_behind_its_columns() {
        assert!(has_no_rowid("CREATE TABLE t (a TEXT PRIMARY KEY) STRICT, WITHOUT  ROWID"));
        assert!(!has_no_rowid("CREATE TABLE t (a TEXT DEFAULT 'without rowid')"));
    }
}
