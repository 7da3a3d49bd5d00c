//! Making messages and deliveries agree, in bounded steps beside producers and relays.

use super::connection::Connection;
use super::error::store_error;
use super::transaction::{BEGIN, transact};
use postroom_core::{Reconciled, StoreResult};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const WINDOW: &str = include_str!("sql/reconcile_window.sql");
const MAKE: &str = include_str!("sql/reconcile_make.sql");
const CLOSED: &str = include_str!("sql/reconcile_closed.sql");
const REMOVE: &str = include_str!("sql/reconcile_remove.sql");
const STRAY: &str = include_str!("sql/reconcile_stray.sql");
const FREE: &str = include_str!("sql/reconcile_free.sql");

/// How many rows are looked at, or mended, in one transaction.
const ROWS: i64 = 5_000;

const DOING: &str = "reconciling";

pub(super) async fn reconcile(client: &Connection) -> StoreResult<Reconciled> {
    // Freed first: what turns out to have no message goes with the others.
    let freed = free(client).await.map_err(|e| store_error(DOING, e))?;
    let made = make(client).await.map_err(|e| store_error(DOING, e))?;
    let removed = remove(client).await.map_err(|e| store_error(DOING, e))?;
    Ok(Reconciled { made, removed, freed })
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

async fn remove(client: &Connection) -> Result<u64, Error> {
    let mut after = i64::MIN;
    let mut removed = 0;
    loop {
        let found = run(client, CLOSED, &[&after, &ROWS]).await?;
        let seqs = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let Some(last) = seqs.last() else { return Ok(removed) };
        after = *last;
        removed += run(client, REMOVE, &[&seqs]).await?.len() as u64;
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
        freed += run(client, FREE, &[&seqs, &claims]).await?.len() as u64;
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
