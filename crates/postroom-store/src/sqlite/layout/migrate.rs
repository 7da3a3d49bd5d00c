//! Making the ledger of a table that somebody else made, and removing it.

use super::made::{TRIGGERS, VIEWS};
use super::{Foreign, Names, catalogue, failed};
use crate::MigrateOptions;
use crate::layout::{Layout, fingerprint};
use crate::migrations::Planned;
use crate::sqlite::migrate::has_table;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::{AssertSqlSafe, Connection as _, Error, SqliteConnection};

/// How the table is read and written, as it was migrated.
const BOOKS: &str = "
CREATE TABLE outbox_layout (
    -- There is one row.
    single     INTEGER PRIMARY KEY CHECK (single = 1),
    table_name TEXT NOT NULL,
    -- Of the triggers and views made from it.
    fingerprint TEXT NOT NULL,
    -- The layout as TOML.
    definition TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
-- Which row the view's trigger wrote last, for whoever enqueues through the view.
CREATE TABLE outbox_enqueued (
    single INTEGER PRIMARY KEY CHECK (single = 1),
    seq    INTEGER NOT NULL
);
INSERT INTO outbox_enqueued (single, seq) VALUES (1, 0);
";
const APPLIED: &str = "SELECT table_name, fingerprint FROM outbox_layout";
const TRIGGERS_THERE: &str = "SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view')";
/// The tables of a ledger.
const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN (
    'outbox_parcel', 'outbox_delivery', 'outbox_relay', 'outbox_claim', 'outbox_lane_cursor', 'outbox_attempt',
    'outbox_action', 'outbox_remembered', 'outbox_checkpoint', 'outbox_schema_migration', 'outbox_layout',
    'outbox_enqueued')";

/// Rows that are open when the layout is applied get deliveries: which of them are fresh, nobody knows.
const OPEN: &str = concat!(
    "INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
SELECT m.id, m.seq, CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
       CAST(round((julianday(m.due_at) - 2440587.5) * 86400000.0) AS INTEGER),
       CASE m.status WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' ELSE 'd' END, m.integration_type
FROM integration_outbox AS m
WHERE\n",
    include_str!("../sql/in_neither.sql")
);

/// The fingerprint of what was made for a layout's table, if there is a ledger of it.
///
/// # Errors
/// When the ledger of these names is another table's: the names of two tables may come to one.
async fn find_applied(
    connection: &mut SqliteConnection,
    layout: &Layout,
) -> StoreResult<Option<String>> {
    let names = Names::of(Some(layout));
    let row = applied(connection, &names).await.map_err(failed)?;
    match row {
        Some((other, _)) if other != layout.table => Err(layout.refused(&format!(
            "the names of its ledger are those of the ledger of {other}: rename one of the tables, or remove the \
             other ledger with `postroom adopt {other} --remove`"
        ))),
        row => Ok(row.map(|(_, fingerprint)| fingerprint)),
    }
}

/// The table that a ledger is of, and the fingerprint.
async fn applied(
    connection: &mut SqliteConnection,
    names: &Names,
) -> Result<Option<(String, String)>, Error> {
    if !has_table(connection, &names.put("outbox_layout")).await? {
        return Ok(None);
    }
    sqlx::query_as(AssertSqlSafe(names.put(APPLIED))).fetch_optional(connection).await
}

/// Whether the ledger is the one that this layout makes.
///
/// # Errors
/// When another layout was migrated, or none.
pub(in crate::sqlite) async fn check_applied(
    connection: &mut SqliteConnection,
    layout: &Layout,
) -> StoreResult<()> {
    let foreign = Foreign::find(connection, layout).await?;
    let made = fingerprint(&foreign.made()?);
    if find_applied(connection, layout).await? == Some(made) {
        return Ok(());
    }
    Err(StoreError::plain(
        StoreErrorKind::Schema,
        format!(
            "the layout of {} or its table has changed since it was migrated: run `postroom migrate`",
            layout.table
        ),
    ))
}

/// What is left to do for the ledger of a table, in order. Changes nothing.
///
/// # Errors
/// When there is no such table and none may be made, or the layout does not fit it.
pub(in crate::sqlite) async fn plan(
    connection: &mut SqliteConnection,
    layout: &Layout,
    options: &MigrateOptions,
) -> StoreResult<Vec<Planned>> {
    layout.check()?;
    let applied = find_applied(connection, layout).await?;
    let mut works = Vec::new();
    let found = catalogue::find(connection, &layout.table).await.map_err(failed)?;
    let found = match found {
        Some(found) => found,
        None => {
            let sql = layout.creation(&options.services)?;
            let found = made_elsewhere(layout, &sql).await?;
            works.push(Planned { number: None, name: format!("the table {}", layout.table), sql });
            found
        }
    };
    let foreign = Foreign::of(layout, found)?;
    let is_own = foreign.table.name == "\"integration_outbox\"";
    if is_own && has_table(connection, "outbox_schema_migration").await.map_err(failed)? {
        return Err(layout.refused(
            "it is Postroom's own table, which has a ledger already: leave `layout` out of the configuration",
        ));
    }
    let faults = foreign.mismatches();
    if !faults.is_empty() {
        let faults: Vec<_> = faults.into_iter().map(|(problem, _)| problem).collect();
        return Err(layout.refused(&faults.join("; ")));
    }
    let made = foreign.made()?;
    let fingerprint = fingerprint(&made);
    if let Some(applied) = applied {
        let triggers = TRIGGERS.map(|name| foreign.names.put(name));
        let there: Vec<String> =
            sqlx::query_scalar(TRIGGERS_THERE).fetch_all(connection).await.map_err(failed)?;
        let is_whole = triggers.iter().all(|name| there.contains(name));
        if applied == fingerprint && is_whole {
            return Ok(works);
        }
    } else {
        let sql = format!("{}{}", foreign.ledger(), foreign.names.put(BOOKS));
        works.push(Planned { number: Some(1), name: format!("ledger of {}", layout.table), sql });
    }
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let taken = foreign.adopt_taken(options.claimed_grace.as_secs_f64()).unwrap_or_default();
    let besides = foreign.besides_of_open().unwrap_or_default();
    let open = foreign.rendered(OPEN);
    let sql = format!(
        "{made}INSERT INTO {} (single, table_name, fingerprint, definition) VALUES (1, {}, {}, {})\n\
         ON CONFLICT (single) DO UPDATE SET fingerprint = excluded.fingerprint, \
         definition = excluded.definition, applied_at = excluded.applied_at;\n{taken}{besides}{open};\n",
        foreign.names.put("outbox_layout"),
        literal(&layout.table),
        literal(&fingerprint),
        literal(&layout.to_toml()),
    );
    works.push(Planned { number: None, name: format!("the layout of {}", layout.table), sql });
    Ok(works)
}

/// What the catalogue would say of a table that is not there yet.
async fn made_elsewhere(layout: &Layout, sql: &str) -> StoreResult<catalogue::Found> {
    let mut elsewhere = SqliteConnection::connect("sqlite::memory:").await.map_err(failed)?;
    let made = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut elsewhere).await;
    made.map_err(failed)?;
    let found = catalogue::find(&mut elsewhere, &layout.table).await.map_err(failed)?;
    found.ok_or_else(|| layout.refused("its `create.sql` makes another table"))
}

/// Removes a ledger. The table and its rows stay.
///
/// # Errors
/// When the ledger is another table's, or the file refuses.
pub(in crate::sqlite) async fn remove(
    connection: &mut SqliteConnection,
    layout: &Layout,
) -> StoreResult<()> {
    if find_applied(connection, layout).await?.is_none() {
        return Ok(());
    }
    let names = Names::of(Some(layout));
    let tables = sqlx::query_scalar(AssertSqlSafe(names.put(TABLES))).fetch_all(&mut *connection);
    let tables: Vec<String> = tables.await.map_err(failed)?;
    let triggers = TRIGGERS.map(|name| names.put(&format!("DROP TRIGGER IF EXISTS {name};")));
    let views = VIEWS.map(|name| names.put(&format!("DROP VIEW IF EXISTS {name};")));
    let tables = tables.iter().map(|name| format!("DROP TABLE {name};"));
    let sql: String = triggers.into_iter().chain(views).chain(tables).collect();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map_err(failed)?;
    Ok(())
}
