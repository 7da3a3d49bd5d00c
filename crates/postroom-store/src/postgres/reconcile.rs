//! Making messages and deliveries agree, in bounded steps beside producers and relays.

use super::connection::Connection;
use super::error::store_error;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use postroom_core::{Reconciled, StoreResult};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const ADVANCE: &str = "SELECT core_outbox.advance_sequence()";
const SHARED: &str = include_str!("sql/reconcile_shared.sql");
const NUMBER: &str = include_str!("sql/reconcile_number.sql");
const WINDOW: &str = include_str!("sql/reconcile_window.sql");
const MAKE: &str = include_str!("sql/reconcile_make.sql");
const CLOSED: &str = include_str!("sql/reconcile_closed.sql");
const REMOVE: &str = include_str!("sql/reconcile_remove.sql");
const STRAY: &str = include_str!("sql/reconcile_stray.sql");
const FREE: &str = include_str!("sql/reconcile_free.sql");
const UNLIKE: &str = include_str!("sql/reconcile_unlike.sql");
const FOLLOW: &str = include_str!("sql/reconcile_follow.sql");

/// How many rows are looked at, or mended, in one transaction.
const ROWS: i64 = 5_000;

const DOING: &str = "reconciling";

pub(super) async fn reconcile(client: &Connection) -> StoreResult<Reconciled> {
    // Numbers first: a message that shares one with another can have no delivery.
    let advanced = advance(client).await.map_err(|e| store_error(DOING, e))?;
    let numbered = mend(client, SHARED, NUMBER).await.map_err(|e| store_error(DOING, e))?;
    // Freed before the others: what turns out to have no message goes with them.
    let freed = free(client).await.map_err(|e| store_error(DOING, e))?;
    let made = make(client).await.map_err(|e| store_error(DOING, e))?;
    let followed = mend(client, UNLIKE, FOLLOW).await.map_err(|e| store_error(DOING, e))?;
    let removed = mend(client, CLOSED, REMOVE).await.map_err(|e| store_error(DOING, e))?;
    Ok(Reconciled { made, removed, freed, followed, advanced, numbered })
}

/// How many sequences were behind the numbers in use.
async fn advance(client: &Connection) -> Result<u64, Error> {
    let answer = run(client, ADVANCE, &[]).await?;
    let is_behind = answer.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
    Ok(u64::from(is_behind.unwrap_or(false)))
}

async fn make(client: &Connection) -> Result<u64, Error> {
    let mut from = Uuid::nil();
    let mut made = 0;
    loop {
        let end = run(client, WINDOW, &[&from, &ROWS]).await?;
        let end: Option<Uuid> = end.first().map(|row| row.try_get(0)).transpose()?;
        made += run(client, MAKE, &[&from, &end]).await?.len() as u64;
        match end {
            Some(end) => from = end,
            None => return Ok(made),
        }
    }
}

/// Looks for deliveries by their number, without a lock, and mends what was found.
async fn mend(client: &Connection, find: &str, mend: &str) -> Result<u64, Error> {
    let mut after = i64::MIN;
    let mut mended = 0;
    loop {
        let found = run(client, find, &[&after, &ROWS]).await?;
        let seqs = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let Some(last) = seqs.last() else { return Ok(mended) };
        after = *last;
        mended += change(client, mend, &[&seqs]).await?.len() as u64;
    }
}

async fn free(client: &Connection) -> Result<u64, Error> {
    let mut after = i64::MIN;
    let mut freed = 0;
    loop {
        let found = run(client, STRAY, &[&after, &ROWS]).await?;
        let seqs = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let claims = found.iter().map(|row| row.try_get(1)).collect::<Result<Vec<Uuid>, _>>()?;
        let Some(last) = seqs.last() else { return Ok(freed) };
        after = *last;
        freed += change(client, FREE, &[&seqs, &claims]).await?.len() as u64;
    }
}

async fn run(
    client: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    transact(client, BEGIN, &statement, params).await
}

/// The same for statements that join what they were given with what they found.
async fn change(
    client: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    transact(client, &format!("{BEGIN}; {JOIN_BY_HASH}"), &statement, params).await
}
