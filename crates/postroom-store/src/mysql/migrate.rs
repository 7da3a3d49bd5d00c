//! Numbered migrations, applied once each.

use super::error::store_error;
use super::hosts::Hosts;
use super::layout;
use super::pool::Pool;
use super::session::Session;
use super::{connect, execute, triggers, version};
use crate::MigrateOptions;
use crate::layout::{Layout, backticked};
use crate::migrations::{self, Migrated, Migration, Noted, Planned};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::Error;

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "outbox",
    sql: include_str!("../../migrations/mysql/0001_outbox.sql"),
}];

/// Two processes that migrate one database at once take turns by this lock, the only one by name. A
/// session's locks go with its connection.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40)), 60)";
const HOLDER: &str =
    "SELECT CAST(IS_USED_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40))) AS UNSIGNED)";
/// A change of a table waits for every transaction that uses it, and producers wait behind it.
const PATIENCE: &str = "SET SESSION lock_wait_timeout = 60, SESSION innodb_lock_wait_timeout = 60";
const UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40)))";
/// DDL commits by itself, so a migration is on record before it begins, and has a time once it
/// has ended: one that was cut off is known as ours, and is repeated.
const BOOKS: &str = "
    CREATE TABLE IF NOT EXISTS outbox_schema_migration (
        number     INT          NOT NULL PRIMARY KEY COMMENT 'Counts the migrations, from 1.',
        name       VARCHAR(100) NOT NULL COMMENT 'What it brings.',
        applied_at DATETIME(6) COMMENT 'When it ended, in UTC. Null while it has not.'
    ) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
      COMMENT = 'The migrations applied, and one that was begun.'";
const HAS_TABLE: &str = "
    SELECT EXISTS (
        SELECT 1 FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
    )";
const NOTED: &str = "
    SELECT CAST(number AS UNSIGNED), applied_at IS NOT NULL FROM outbox_schema_migration";
const BEGIN: &str = "INSERT IGNORE INTO outbox_schema_migration (number, name) VALUES (?, ?)";
const END: &str =
    "UPDATE outbox_schema_migration SET applied_at = UTC_TIMESTAMP(6) WHERE number = ?";
const VERSION: &str = "
    SELECT CAST(COALESCE(MAX(number), 0) AS SIGNED) FROM outbox_schema_migration
    WHERE applied_at IS NOT NULL";

const LOOKING: &str = "looking at what was migrated";

/// Applies what is missing. Safe to run twice, after one that was cut off, and from several
/// processes at once.
///
/// # Errors
/// When the database cannot be reached, refuses, holds a table of that name that Postroom did
/// not make, or a schema newer than this program.
pub async fn migrate(url: &str, options: &MigrateOptions) -> StoreResult<Migrated> {
    let failed = |error| store_error("migrating", error);
    let mut connection = connect::session(url, "migrating").await?;
    expect_supported(&mut connection).await.map_err(failed)?;
    sqlx::raw_sql(PATIENCE).execute(&mut connection).await.map_err(failed)?;
    let locked: Option<bool> =
        sqlx::query_scalar(LOCK).fetch_one(&mut connection).await.map_err(failed)?;
    if locked != Some(true) {
        let holder: Option<u64> =
            sqlx::query_scalar(HOLDER).fetch_one(&mut connection).await.unwrap_or(None);
        let holder =
            holder.map_or_else(String::new, |id| format!(" (connection {id} of the server)"));
        return Err(StoreError::plain(
            StoreErrorKind::Conflict,
            format!(
                "another `postroom migrate` has held the migration lock for a minute{holder}: wait \
                 for it to finish, then run this again"
            ),
        ));
    }
    let mut migrated = Migrated::default();
    let database = Hosts::parse(url)?.database().to_owned();
    if options.layout.is_some() {
        sqlx::raw_sql(layout::MODE).execute(&mut connection).await.map_err(failed)?;
    }
    loop {
        // The ledger of a table that is made here can be planned only once that is there.
        let works = left(url, &mut connection, options).await?;
        if works.is_empty() {
            break;
        }
        for work in works {
            run(&mut connection, &work).await.map_err(|e| store_error(&work.title(), e))?;
            migrated.add(&work);
        }
        execute(&mut connection, format!("USE {}", backticked(&database))).await.map_err(failed)?;
    }
    if let Some(of) = options.layout.as_ref().filter(|_| migrated != Migrated::default()) {
        layout::catch_up(&mut connection, of, &database).await?;
    }
    sqlx::raw_sql(UNLOCK).execute(&mut connection).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(migrated)
}

/// What [`migrate`] would run.
///
/// # Errors
/// As [`migrate`].
pub async fn plan(url: &str, options: &MigrateOptions) -> StoreResult<Vec<Planned>> {
    let mut connection = connect::session(url, LOOKING).await?;
    expect_supported(&mut connection).await.map_err(|error| store_error(LOOKING, error))?;
    if options.layout.is_some() {
        let mode = sqlx::raw_sql(layout::MODE).execute(&mut connection).await;
        mode.map_err(|error| store_error(LOOKING, error))?;
    }
    let planned = left(url, &mut connection, options).await?;
    connection.close().await.map_err(|e| store_error(LOOKING, e))?;
    Ok(planned)
}

/// Removes the ledger of a layout. The table and its rows stay.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn remove_ledger(url: &str, layout: &Layout) -> StoreResult<()> {
    let failed = |error| store_error("removing a ledger", error);
    let mut connection = connect::session(url, "removing a ledger").await?;
    sqlx::raw_sql(PATIENCE).execute(&mut connection).await.map_err(failed)?;
    layout::remove(&mut connection, layout, Hosts::parse(url)?.database()).await?;
    connection.close().await.map_err(failed)
}

/// Proposes a layout for a table that somebody else made.
///
/// # Errors
/// When the database cannot be reached, there is no such table, or nothing in it can be a message.
pub async fn propose_layout(url: &str, table: &str) -> StoreResult<String> {
    let mut connection = connect::session(url, "looking at a table").await?;
    let proposed = layout::propose(&mut connection, table, Hosts::parse(url)?.database()).await?;
    connection.close().await.map_err(|error| store_error("looking at a table", error))?;
    Ok(proposed)
}

/// The statements that give producers and relays of a layout their rights.
///
/// # Errors
/// When the URL is malformed.
pub(crate) fn layout_grants(url: &str, of: &Layout) -> StoreResult<String> {
    Ok(layout::grants(of, Hosts::parse(url)?.database()))
}

/// An outbox must not be made where it would not work.
async fn expect_supported(connection: &mut Session) -> Result<(), Error> {
    let version: String = sqlx::query_scalar("SELECT VERSION()").fetch_one(connection).await?;
    version::locking(&version).map_err(|unsupported| Error::Configuration(unsupported.into()))?;
    Ok(())
}

/// Everything that is left to do, in order. Changes nothing.
async fn left(
    url: &str,
    connection: &mut Session,
    options: &MigrateOptions,
) -> StoreResult<Vec<Planned>> {
    let failed = |error| store_error(LOOKING, error);
    if let Some(of) = &options.layout {
        let database = Hosts::parse(url)?.database().to_owned();
        return layout::plan(connection, of, &database, options).await;
    }
    let noted = noted(connection).await.map_err(failed)?;
    let has_table = has_table(connection, "integration_outbox").await.map_err(failed)?;
    let mut planned = migrations::left(MIGRATIONS, &noted, has_table)?;
    if noted.iter().any(|note| note.number == 1 && note.finished) {
        let mut missing = triggers::missing(connection).await.map_err(failed)?;
        missing.retain(|name| !migrations::makes_trigger(&planned, name));
        planned.extend(missing.into_iter().map(triggers::making));
    }
    Ok(planned)
}

async fn noted(connection: &mut Session) -> Result<Vec<Noted>, Error> {
    if !has_table(connection, "outbox_schema_migration").await? {
        return Ok(Vec::new());
    }
    let rows: Vec<(u32, bool)> = sqlx::query_as(NOTED).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(number, finished)| Noted { number, finished }).collect())
}

async fn has_table(connection: &mut Session, name: &str) -> Result<bool, Error> {
    sqlx::query_scalar(HAS_TABLE).bind(None::<String>).bind(name).fetch_one(connection).await
}

pub(super) async fn has_table_in(
    connection: &mut Session,
    database: &str,
    name: &str,
) -> Result<bool, Error> {
    sqlx::query_scalar(HAS_TABLE).bind(database).bind(name).fetch_one(connection).await
}

async fn run(connection: &mut Session, work: &Planned) -> Result<(), Error> {
    let mut sections = sections(&work.sql);
    // A ledger that is a database of its own is entered before its books are opened there.
    let entering = sections.first().and_then(|first| layout::entering(first));
    if let Some((enter, rest)) = entering {
        execute(connection, enter.to_owned()).await?;
        sections[0] = rest;
    }
    if let Some(number) = work.number {
        sqlx::raw_sql(BOOKS).execute(&mut *connection).await?;
        sqlx::query(BEGIN).bind(number).bind(&work.name).execute(&mut *connection).await?;
    }
    for statements in sections {
        execute(connection, statements.to_owned()).await?;
    }
    if let Some(number) = work.number {
        sqlx::query(END).bind(number).execute(&mut *connection).await?;
    }
    Ok(())
}

/// What a script says between its `DELIMITER` lines, as the command-line client would send it.
/// The server itself understands semicolons, those inside of triggers included.
fn sections(script: &str) -> Vec<&str> {
    let mut sections = Vec::new();
    let mut delimiter = ";";
    for (index, part) in script.split("\nDELIMITER ").enumerate() {
        let mut statements = part;
        // The script's first part has no delimiter of its own.
        if index > 0 {
            (delimiter, statements) = part.split_once('\n').unwrap_or((part, ""));
        }
        if delimiter == ";" {
            sections.push(statements);
        } else {
            sections.extend(statements.split(delimiter));
        }
    }
    sections.retain(|statements| !statements.trim().is_empty());
    sections
}

/// Whether the schema is the one this program was built for.
pub(super) async fn check_version(pool: &Pool) -> StoreResult<()> {
    let found: i64 = sqlx::query_scalar(VERSION)
        .fetch_one(pool)
        .await
        .map_err(|e| store_error("reading the schema's version", e))?;
    let found = i32::try_from(found).unwrap_or(i32::MAX);
    migrations::check(found, migrations::latest(MIGRATIONS))
}
