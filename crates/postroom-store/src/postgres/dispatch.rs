//! Looking up what jobs refer to.

use super::PgStore;
use super::error::store_error;
use super::ids::as_ids;
use super::parcels::Edits;
use super::row;
use super::transaction::{BEGIN, transact};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, MessageId, StoreResult, Token};
use std::time::Duration;

pub(super) const DISPATCHED: &str = include_str!("sql/dispatched.sql");
pub(super) const REOPEN: &str = include_str!("sql/reopen.sql");

#[async_trait]
impl Dispatches for PgStore {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        let doing = "reading dispatched messages";
        let ids = as_ids(ids);
        let client = self.connection().await?;
        // A message that was opened again by hand has a number of its own once that is followed. Nobody waits
        // for changes of other messages, of which there may be very many.
        self.follow_any_edits(&client, Edits::OfMessages(&ids), Duration::MAX)
            .await
            .map_err(|e| store_error(doing, e))?;
        let statement =
            client.prepare_cached(DISPATCHED).await.map_err(|e| store_error(doing, e))?;
        let rows = transact(&client, BEGIN, &statement, &[&ids])
            .await
            .map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(row::dispatched)
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        let doing = "setting failed messages back to PENDING";
        let client = self.connection().await?;
        let statement = client.prepare_cached(REOPEN).await.map_err(|e| store_error(doing, e))?;
        let locked = transact(&client, BEGIN, &statement, &[&claim.0, &seqs])
            .await
            .map_err(|e| store_error(doing, e))?;
        locked
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }
}
