//! Numbered migrations, applied once each.

use super::connect;
use super::error::store_error;
use crate::migrations::{Migration, Planned};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::mysql::MySqlPool;
use sqlx::{Error, MySqlConnection};

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "outbox",
    sql: include_str!("../../migrations/mysql/0001_outbox.sql"),
}];

/// Two processes that migrate one database at once take turns by this lock. A session's locks go
/// with its connection.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40)), 60)";
const UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('postroom.', LEFT(SHA1(DATABASE()), 40)))";
/// DDL commits by itself, so a migration is on record before it begins, and has a time once it
/// has ended: one that was cut off is known as ours, and is repeated.
const BOOKS: &str = "
    CREATE TABLE IF NOT EXISTS outbox_schema_migration (
        number     INT          NOT NULL PRIMARY KEY,
        name       VARCHAR(100) NOT NULL,
        applied_at DATETIME(6)
    ) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4";
const HAS_BOOKS: &str = "
    SELECT EXISTS (
        SELECT 1 FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox_schema_migration'
    )";
const APPLIED: &str = "
    SELECT CAST(number AS UNSIGNED) FROM outbox_schema_migration WHERE applied_at IS NOT NULL";
const IS_APPLIED: &str = "
    SELECT EXISTS (
        SELECT 1 FROM outbox_schema_migration WHERE number = ? AND applied_at IS NOT NULL
    )";
const IS_FOREIGN: &str = "
    SELECT EXISTS (
        SELECT 1 FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'integration_outbox'
    ) AND NOT EXISTS (SELECT 1 FROM outbox_schema_migration)";
const BEGIN: &str = "INSERT IGNORE INTO outbox_schema_migration (number, name) VALUES (?, ?)";
const END: &str =
    "UPDATE outbox_schema_migration SET applied_at = UTC_TIMESTAMP(6) WHERE number = ?";
const VERSION: &str = "
    SELECT CAST(COALESCE(MAX(number), 0) AS SIGNED) FROM outbox_schema_migration
    WHERE applied_at IS NOT NULL";

/// Applies what is missing and returns its numbers. Safe to run twice, after one that was cut
/// off, and from several processes at once.
///
/// # Errors
/// When the database cannot be reached, refuses, or holds a table of that name that Postroom did
/// not make.
pub async fn migrate(url: &str) -> StoreResult<Vec<u32>> {
    let pool = connect::pool(connect::options(url)?, 1);
    let failed = |error| store_error("migrating", error);
    let mut connection = pool.acquire().await.map_err(failed)?;
    let locked: Option<bool> =
        sqlx::query_scalar(LOCK).fetch_one(&mut *connection).await.map_err(failed)?;
    if locked != Some(true) {
        return Err(StoreError::plain(
            StoreErrorKind::Conflict,
            "another process has been migrating this database for a minute: try again later",
        ));
    }
    let mut applied = Vec::new();
    for migration in MIGRATIONS {
        if apply(&mut connection, migration).await? {
            applied.push(migration.number);
        }
    }
    sqlx::raw_sql(UNLOCK).execute(&mut *connection).await.map_err(failed)?;
    drop(connection);
    pool.close().await;
    Ok(applied)
}

/// What [`migrate`] would run.
///
/// # Errors
/// When the database cannot be reached or read.
pub async fn plan(url: &str) -> StoreResult<Vec<Planned>> {
    let failed = |error| store_error("looking at what was migrated", error);
    let pool = connect::pool(connect::options(url)?, 1);
    let has_books: bool = sqlx::query_scalar(HAS_BOOKS).fetch_one(&pool).await.map_err(failed)?;
    let applied: Vec<u32> = if has_books {
        sqlx::query_scalar(APPLIED).fetch_all(&pool).await.map_err(failed)?
    } else {
        Vec::new()
    };
    pool.close().await;
    let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.number));
    let planned = missing.map(|migration| Planned {
        number: Some(migration.number),
        name: migration.name.to_owned(),
        sql: migration.sql.trim().to_owned(),
    });
    Ok(planned.collect())
}

async fn apply(connection: &mut MySqlConnection, migration: &Migration) -> StoreResult<bool> {
    let doing = format!("migration {:04}_{}", migration.number, migration.name);
    let failed = |error| store_error(&doing, error);
    sqlx::raw_sql(BOOKS).execute(&mut *connection).await.map_err(failed)?;
    let known: bool = sqlx::query_scalar(IS_APPLIED)
        .bind(migration.number)
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
    if known {
        return Ok(false);
    }
    let foreign: bool =
        sqlx::query_scalar(IS_FOREIGN).fetch_one(&mut *connection).await.map_err(failed)?;
    if foreign {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!(
                "{doing}: integration_outbox exists already and was not made by Postroom; this \
                 version cannot adopt it. Nothing was changed. Rename the table, or use another \
                 database"
            ),
        ));
    }
    run(connection, migration).await.map_err(failed)?;
    Ok(true)
}

async fn run(connection: &mut MySqlConnection, migration: &Migration) -> Result<(), Error> {
    sqlx::query(BEGIN)
        .bind(migration.number)
        .bind(migration.name)
        .execute(&mut *connection)
        .await?;
    for statements in sections(migration.sql) {
        sqlx::raw_sql(statements).execute(&mut *connection).await?;
    }
    sqlx::query(END).bind(migration.number).execute(&mut *connection).await?;
    Ok(())
}

/// What a script says between its `DELIMITER` lines, as the command-line client would send it.
/// The server itself understands semicolons, those inside of triggers included.
fn sections(script: &'static str) -> Vec<&'static str> {
    let mut sections = Vec::new();
    let mut delimiter = ";";
    for part in script.split("\nDELIMITER ") {
        // The script's first part has no delimiter of its own.
        let statements = match part.split_once('\n') {
            Some((word, rest)) if !sections.is_empty() => {
                delimiter = word.trim();
                rest
            }
            _ => part,
        };
        if delimiter == ";" {
            sections.push(statements);
        } else {
            sections.extend(statements.split(delimiter).filter(|one| !one.trim().is_empty()));
        }
    }
    sections
}

/// Whether the schema is the one this program was built for.
pub(super) async fn check_version(pool: &MySqlPool) -> StoreResult<()> {
    let found: i64 = sqlx::query_scalar(VERSION)
        .fetch_one(pool)
        .await
        .map_err(|e| store_error("reading the schema's version", e))?;
    let latest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    let number = |n| i32::try_from(n).unwrap_or(i32::MAX);
    crate::migrations::check(number(found), number(i64::from(latest)))
}
