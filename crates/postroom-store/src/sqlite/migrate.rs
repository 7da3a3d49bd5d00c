//! Numbered migrations, applied once each.

use super::connect;
use super::error::store_error;
use super::layout::{self, Names};
use super::session::Readers;
use crate::MigrateOptions;
use crate::layout::Layout;
use crate::migrations::{
    self, Migrated, Migration, Noted, Planned, TRIGGERS, make_trigger, makes_trigger,
};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::{AssertSqlSafe, Connection as _, Error, SqliteConnection};
use std::path::Path;

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "outbox",
    sql: include_str!("../../migrations/sqlite/0001_outbox.sql"),
}];

const BOOKS: &str = "
    CREATE TABLE IF NOT EXISTS outbox_schema_migration (
        number     INTEGER PRIMARY KEY,
        -- What it brings.
        name       TEXT NOT NULL,
        applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    )";
const HAS_TABLE: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE)";
const NOTED: &str = "SELECT number FROM outbox_schema_migration";
const TRIGGERS_THERE: &str = "SELECT name FROM sqlite_schema WHERE type = 'trigger'";
const NOTE: &str = "INSERT INTO outbox_schema_migration (number, name) VALUES (?1, ?2)";
const VERSION: &str = "SELECT coalesce(max(number), 0) FROM outbox_schema_migration";

const LOOKING: &str = "looking at what was migrated";

/// Applies what is missing. Safe to run twice, and from several processes at once: all of it is
/// one transaction under the write lock.
///
/// # Errors
/// When the file cannot be opened or written, holds a table of that name that Postroom did not
/// make, or a schema newer than this program.
pub async fn migrate(path: &Path, options: &MigrateOptions) -> StoreResult<Migrated> {
    let pool = connect::pool(connect::writing(path)?, 1, path).await?;
    let failed = |error| store_error("migrating", error);
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let mut migrated = Migrated::default();
    if let Some(layout) = &options.layout {
        layout::expect_own_outbox(&mut tx, layout).await?;
    }
    let names = Names::of(options.layout.as_deref());
    for work in left(&mut tx, options).await? {
        run(&mut tx, &work, &names).await.map_err(|e| store_error(&work.title(), e))?;
        migrated.add(&work);
    }
    tx.commit().await.map_err(failed)?;
    pool.close().await;
    Ok(migrated)
}

/// What [`migrate`] would run. A file that is not there is not made.
///
/// # Errors
/// As [`migrate`].
pub async fn plan(path: &Path, options: &MigrateOptions) -> StoreResult<Vec<Planned>> {
    looking(path, async |connection| left(connection, options).await).await
}

/// Proposes a layout for a table, as the `[database]` section of a configuration.
///
/// # Errors
/// When there is no such file or table, or nothing in it can be a message.
pub async fn propose_layout(path: &Path, table: &str) -> StoreResult<String> {
    if !path.exists() {
        let problem = format!("there is no file {}", path.display());
        return Err(StoreError::plain(StoreErrorKind::Refused, problem));
    }
    looking(path, async |connection| layout::propose(connection, table).await).await
}

/// Looks into the file; into an empty one in memory where there is none.
async fn looking<T>(
    path: &Path,
    look: impl AsyncFnOnce(&mut SqliteConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    let failed = |error| store_error(LOOKING, error);
    if !path.exists() {
        let mut nothing = SqliteConnection::connect("sqlite::memory:").await.map_err(failed)?;
        return look(&mut nothing).await;
    }
    let pool = connect::pool(connect::reading(path)?, 1, path).await?;
    let mut connection = pool.acquire().await.map_err(failed)?;
    let found = look(&mut connection).await;
    drop(connection);
    pool.close().await;
    found
}

/// Everything that is left to do, in order. Changes nothing.
async fn left(
    connection: &mut SqliteConnection,
    options: &MigrateOptions,
) -> StoreResult<Vec<Planned>> {
    if let Some(layout) = &options.layout {
        return layout::plan(connection, layout, options).await;
    }
    let failed = |error| store_error(LOOKING, error);
    let noted = noted(connection).await.map_err(failed)?;
    let has_table = has_table(connection, "integration_outbox").await.map_err(failed)?;
    let mut planned = migrations::left(MIGRATIONS, &noted, has_table)?;
    if noted.is_empty() {
        expect_free_names(connection).await?;
    } else {
        let mut missing = missing_triggers(connection).await.map_err(failed)?;
        missing.retain(|name| !makes_trigger(&planned, name));
        planned.extend(missing.into_iter().map(|name| Planned {
            number: None,
            name: format!("the trigger {name}"),
            sql: make_trigger(MIGRATIONS, name, "\nEND;").to_owned(),
        }));
    }
    Ok(planned)
}

/// Removes the ledger of a layout. The table and its rows stay.
///
/// # Errors
/// When the file cannot be opened or written, or the ledger of these names is another table's.
pub async fn remove_ledger(path: &Path, layout: &Layout) -> StoreResult<()> {
    let failed = |error| store_error("removing a ledger", error);
    let pool = connect::pool(connect::writing(path)?, 1, path).await?;
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    layout::remove(&mut tx, layout).await?;
    tx.commit().await.map_err(failed)?;
    pool.close().await;
    Ok(())
}

/// The tables and views of Postroom's own outbox.
fn own_names() -> impl Iterator<Item = &'static str> {
    let after = |sql: &'static str, words| sql.split(words).skip(1);
    let statements = MIGRATIONS.iter().flat_map(move |migration| {
        after(migration.sql, "CREATE TABLE ").chain(after(migration.sql, "CREATE VIEW "))
    });
    statements.filter_map(|rest| rest.split_whitespace().next())
}

/// Makes sure that no table of somebody else's has one of these names.
async fn expect_free_names(connection: &mut SqliteConnection) -> StoreResult<()> {
    for name in own_names() {
        if has_table(connection, name).await.map_err(|error| store_error(LOOKING, error))? {
            return Err(StoreError::plain(
                StoreErrorKind::Refused,
                format!(
                    "{name} exists already and was not made by Postroom, whose own outbox needs the name. Nothing \
                     was changed. Rename the table, or use another file"
                ),
            ));
        }
    }
    Ok(())
}

async fn noted(connection: &mut SqliteConnection) -> Result<Vec<Noted>, Error> {
    if !has_table(connection, "outbox_schema_migration").await? {
        return Ok(Vec::new());
    }
    let numbers: Vec<u32> = sqlx::query_scalar(NOTED).fetch_all(connection).await?;
    Ok(numbers.into_iter().map(|number| Noted { number, finished: true }).collect())
}

pub(super) async fn has_table(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<bool, Error> {
    sqlx::query_scalar(HAS_TABLE).bind(name).fetch_one(connection).await
}

/// The triggers that are not there.
pub(super) async fn missing_triggers(
    connection: &mut SqliteConnection,
) -> Result<Vec<&'static str>, Error> {
    let there: Vec<String> = sqlx::query_scalar(TRIGGERS_THERE).fetch_all(connection).await?;
    Ok(TRIGGERS.into_iter().filter(|name| !there.iter().any(|one| one == name)).collect())
}

async fn run(tx: &mut SqliteConnection, work: &Planned, names: &Names) -> Result<(), Error> {
    // The whole script at once: its triggers hold semicolons of their own.
    sqlx::raw_sql(AssertSqlSafe(work.sql.clone())).execute(&mut *tx).await?;
    if let Some(number) = work.number {
        sqlx::query(AssertSqlSafe(names.put(BOOKS))).execute(&mut *tx).await?;
        let note = sqlx::query(AssertSqlSafe(names.put(NOTE)));
        note.bind(number).bind(&work.name).execute(&mut *tx).await?;
    }
    Ok(())
}

/// Whether the schema is the one this program was built for, and the ledger the one of this layout.
pub(super) async fn check_version(readers: &Readers) -> StoreResult<()> {
    let doing = "reading the schema's version";
    let mut connection = readers.pool.acquire().await.map_err(|e| store_error(doing, e))?;
    let version = Names::of(readers.lookup.layout()).put(VERSION);
    let found: i32 = sqlx::query_scalar(AssertSqlSafe(version))
        .fetch_one(&mut *connection)
        .await
        .map_err(|e| store_error(doing, e))?;
    migrations::check(found, migrations::latest(MIGRATIONS))?;
    match readers.lookup.layout() {
        Some(layout) => layout::check_applied(&mut connection, layout).await,
        None => Ok(()),
    }
}
