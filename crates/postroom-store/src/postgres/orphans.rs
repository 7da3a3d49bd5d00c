//! Dead deliveries whose message was deleted by hand: no claim ever comes by to find them.

use super::PgStore;
use super::error::store_error;
use super::transaction::{BEGIN, transact};
use postroom_core::StoreResult;
use std::sync::{Mutex, PoisonError};
use tokio_postgres::{Error, Row};

pub(super) const PRUNE_ORPHANS: &str = include_str!("sql/prune_orphans.sql");

/// How far the dead deliveries were looked through, by integration and number. Every process goes
/// its own round.
#[derive(Debug)]
pub(super) struct LookedThrough(Mutex<(String, i64)>);

impl Default for LookedThrough {
    fn default() -> Self {
        Self(Mutex::new(beginning()))
    }
}

fn beginning() -> (String, i64) {
    (String::new(), i64::MIN)
}

/// Removes such deliveries. Looks at no more than `deliveries` dead ones, and goes on there the
/// next time.
pub(super) async fn prune(store: &PgStore, deliveries: i64) -> StoreResult<()> {
    let doing = "pruning deliveries without a message";
    let looked_through = || store.looked_through.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (integration, seq) = looked_through().clone();
    let client = store.connection().await?;
    let statement =
        client.prepare_cached(PRUNE_ORPHANS).await.map_err(|e| store_error(doing, e))?;
    let rows = transact(&client, BEGIN, &statement, &[&integration, &seq, &deliveries])
        .await
        .map_err(|e| store_error(doing, e))?;
    let last = rows.first().map(last).transpose().map_err(|e| store_error(doing, e))?;
    *looked_through() = last.unwrap_or_else(beginning);
    Ok(())
}

fn last(row: &Row) -> Result<(String, i64), Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
