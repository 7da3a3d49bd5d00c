//! Numbered migrations, applied once each.

use super::error::store_error;
use super::{config, connect};
use crate::migrations::Migration;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::time::Duration;
use tokio_postgres::Client;

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "outbox",
        before: &[],
        sql: include_str!("../../migrations/postgres/0001_outbox.sql"),
    },
    Migration {
        number: 2,
        name: "administration",
        // Lists go by it in pages, and it refuses a number that is taken: that message would have
        // no delivery. One that was left half-built is begun again.
        before: &[
            "DROP INDEX CONCURRENTLY IF EXISTS core_outbox.outbox_seq",
            "CREATE UNIQUE INDEX CONCURRENTLY outbox_seq ON core_outbox.integration_outbox (seq)",
        ],
        sql: include_str!("../../migrations/postgres/0002_administration.sql"),
    },
];

/// Two processes that migrate at once take turns by this lock. It is tried again and again: who
/// waited in the database for it would be waited for by an index that is built concurrently.
const LOCK: &str = "SELECT pg_try_advisory_lock(7305804401)";
const LOCK_PAUSE: Duration = Duration::from_millis(50);
const IS_KNOWN: &str = "SELECT 1 FROM core_outbox.schema_migration WHERE number = $1";
const BOOKS: &str = "
    CREATE SCHEMA IF NOT EXISTS core_outbox;
    CREATE TABLE IF NOT EXISTS core_outbox.schema_migration (
        number     int         PRIMARY KEY,
        name       text        NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now()
    )";
const FOREIGN_TABLE: &str = "
    SELECT to_regclass('core_outbox.integration_outbox') IS NOT NULL
       AND NOT EXISTS (SELECT FROM core_outbox.schema_migration)";

/// Applies what is missing and returns its numbers. Safe to run twice, and from several
/// processes at once: all of them under one lock, each in one transaction but for what it does
/// before.
///
/// # Errors
/// When the database cannot be reached, refuses, or holds a table of that name that Postroom did
/// not make.
pub async fn migrate(url: &str) -> StoreResult<Vec<u32>> {
    let (mut client, connection) = connect(&config(url)?).await?;
    let driver = tokio::spawn(connection);
    take_turn(&client).await?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS {
        if apply(&mut client, migration).await? {
            applied.push(migration.number);
        }
    }
    drop(client);
    let _ = driver.await;
    Ok(applied)
}

/// Waits until no other process migrates; the lock goes with the connection.
async fn take_turn(client: &Client) -> StoreResult<()> {
    let doing = "waiting for another migration";
    loop {
        let row = client.query_one(LOCK, &[]).await.map_err(|e| store_error(doing, e))?;
        if row.try_get(0).map_err(|e| store_error(doing, e))? {
            return Ok(());
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

async fn apply(client: &mut Client, migration: &Migration) -> StoreResult<bool> {
    let doing = format!("migration {:04}_{}", migration.number, migration.name);
    if !migration.before.is_empty() {
        let known = client
            .query_opt(IS_KNOWN, &[&number(migration.number)])
            .await
            .map_err(|e| store_error(&doing, e))?;
        if known.is_some() {
            return Ok(false);
        }
        for statement in migration.before {
            client.batch_execute(statement).await.map_err(|e| store_error(&doing, e))?;
        }
    }
    let tx = client.transaction().await.map_err(|e| store_error(&doing, e))?;
    tx.batch_execute(BOOKS).await.map_err(|e| store_error(&doing, e))?;
    let number = number(migration.number);
    let known = tx.query_opt(IS_KNOWN, &[&number]).await.map_err(|e| store_error(&doing, e))?;
    if known.is_some() {
        return Ok(false);
    }
    let foreign = tx.query_one(FOREIGN_TABLE, &[]).await.map_err(|e| store_error(&doing, e))?;
    if foreign.get::<_, bool>(0) {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!(
                "{doing}: core_outbox.integration_outbox exists already and was not made by \
                 Postroom; this version cannot adopt it. Nothing was changed. Rename the table, \
                 or use another database"
            ),
        ));
    }
    tx.batch_execute(migration.sql).await.map_err(|e| store_error(&doing, e))?;
    tx.execute(
        "INSERT INTO core_outbox.schema_migration (number, name) VALUES ($1, $2)",
        &[&number, &migration.name],
    )
    .await
    .map_err(|e| store_error(&doing, e))?;
    tx.commit().await.map_err(|e| store_error(&doing, e))?;
    Ok(true)
}

/// Turns the signal for new messages on or off in the database. Off, producers can use
/// PREPARE TRANSACTION, which NOTIFY forbids, and relays poll.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn set_notify(url: &str, on: bool) -> StoreResult<()> {
    let (client, connection) = connect(&config(url)?).await?;
    let driver = tokio::spawn(connection);
    let verb = if on { "ENABLE" } else { "DISABLE" };
    client
        .batch_execute(&format!(
            "ALTER TABLE core_outbox.integration_outbox {verb} TRIGGER outbox_wake"
        ))
        .await
        .map_err(|e| store_error("turning the wake trigger on or off", e))?;
    drop(client);
    let _ = driver.await;
    Ok(())
}

/// Whether the schema is the one this program was built for.
pub(super) async fn check_version(client: &Client) -> StoreResult<()> {
    let doing = "reading the schema's version";
    let row = client
        .query_one("SELECT coalesce(max(number), 0) FROM core_outbox.schema_migration", &[])
        .await
        .map_err(|e| store_error(doing, e))?;
    let found: i32 = row.try_get(0).map_err(|e| store_error(doing, e))?;
    let latest = MIGRATIONS.last().map_or(0, |migration| number(migration.number));
    crate::migrations::check(found, latest)
}

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
