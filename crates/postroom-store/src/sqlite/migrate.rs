//! Numbered migrations, applied once each.

use super::connect;
use super::error::store_error;
use crate::migrations::{Migration, Planned};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::sqlite::SqlitePool;
use std::path::Path;

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "outbox",
        sql: include_str!("../../migrations/sqlite/0001_outbox.sql"),
    },
    Migration {
        number: 2,
        name: "administration",
        sql: include_str!("../../migrations/sqlite/0002_administration.sql"),
    },
];

const BOOKS: &str = "
    CREATE TABLE IF NOT EXISTS outbox_schema_migration (
        number     INTEGER PRIMARY KEY,
        name       TEXT NOT NULL,
        applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    )";
const HAS_BOOKS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'outbox_schema_migration')";
const IS_KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM outbox_schema_migration WHERE number = ?1)";
const IS_FOREIGN: &str = "
    SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'integration_outbox')
       AND NOT EXISTS (SELECT 1 FROM outbox_schema_migration)";
const NOTE: &str = "INSERT INTO outbox_schema_migration (number, name) VALUES (?1, ?2)";
const VERSION: &str = "SELECT coalesce(max(number), 0) FROM outbox_schema_migration";

/// Applies what is missing and returns its numbers. Safe to run twice, and from several
/// processes at once: each migration is one transaction under the write lock.
///
/// # Errors
/// When the file cannot be opened or written, or holds a table of that name that Postroom did
/// not make.
pub async fn migrate(path: &Path) -> StoreResult<Vec<u32>> {
    let pool = connect::pool(connect::writing(path)?, 1, path).await?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS {
        if apply(&pool, migration).await? {
            applied.push(migration.number);
        }
    }
    pool.close().await;
    Ok(applied)
}

/// What [`migrate`] would run. A file that is not there is not made.
///
/// # Errors
/// When the file cannot be read.
pub async fn plan(path: &Path) -> StoreResult<Vec<Planned>> {
    let applied = if path.exists() { applied(path).await? } else { Vec::new() };
    let missing = MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.number));
    let planned = missing.map(|migration| Planned {
        number: Some(migration.number),
        name: migration.name.to_owned(),
        sql: migration.sql.trim().to_owned(),
    });
    Ok(planned.collect())
}

async fn applied(path: &Path) -> StoreResult<Vec<u32>> {
    let failed = |error| store_error("looking at what was migrated", error);
    let pool = connect::pool(connect::reading(path)?, 1, path).await?;
    let has_books: bool = sqlx::query_scalar(HAS_BOOKS).fetch_one(&pool).await.map_err(failed)?;
    let numbers = if has_books {
        sqlx::query_scalar("SELECT number FROM outbox_schema_migration").fetch_all(&pool).await
    } else {
        Ok(Vec::new())
    };
    pool.close().await;
    numbers.map_err(failed)
}

async fn apply(pool: &SqlitePool, migration: &Migration) -> StoreResult<bool> {
    let doing = format!("migration {:04}_{}", migration.number, migration.name);
    let failed = |error| store_error(&doing, error);
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    sqlx::query(BOOKS).execute(&mut *tx).await.map_err(failed)?;
    let known: bool = sqlx::query_scalar(IS_KNOWN)
        .bind(migration.number)
        .fetch_one(&mut *tx)
        .await
        .map_err(failed)?;
    if known {
        return Ok(false);
    }
    let foreign: bool = sqlx::query_scalar(IS_FOREIGN).fetch_one(&mut *tx).await.map_err(failed)?;
    if foreign {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!(
                "{doing}: integration_outbox exists already and was not made by Postroom; this \
                 version cannot adopt it. Nothing was changed. Rename the table, or use another \
                 file"
            ),
        ));
    }
    // The whole script at once: its triggers hold semicolons of their own.
    sqlx::raw_sql(migration.sql).execute(&mut *tx).await.map_err(failed)?;
    sqlx::query(NOTE)
        .bind(migration.number)
        .bind(migration.name)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(true)
}

/// Whether the schema is the one this program was built for.
pub(super) async fn check_version(readers: &SqlitePool) -> StoreResult<()> {
    let found: i32 = sqlx::query_scalar(VERSION)
        .fetch_one(readers)
        .await
        .map_err(|e| store_error("reading the schema's version", e))?;
    let latest = MIGRATIONS.last().map_or(0, |migration| migration.number);
    crate::migrations::check(found, i32::try_from(latest).unwrap_or(i32::MAX))
}
