//! The statements of the hot path with nothing around them: what benchmarks compare a relay with.
//!
//! Statements, parameters and transactions are the store's own, called through the same functions,
//! so that a benchmark cannot fall behind the store.

use super::PgStore;
use super::content::{READ_PARCELS, clamp_i32};
use super::error::store_error;
use super::ids::id;
use super::parcels::{HeldParcels, Which};
use super::settle::settle;
use crate::OpenOptions;
use crate::layout::Layout;
use crate::parcel_token::parcel_token;
use postroom_core::{
    Fate, Fence, Heartbeat, RelayId, Relays as _, Settlement, StoreResult, Take, Verdict,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

const DOING: &str = "running bare statements";

/// One connection that takes, and one that settles. Fresh messages only: rows are not turned into messages, and nothing is looked up
/// again.
#[derive(Debug)]
pub struct Bare {
    store: PgStore,
}

impl Bare {
    /// Connects on first use. SENT is recorded in the background for the integrations in `record_later`.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn new(url: &str, record_later: Vec<String>) -> StoreResult<Self> {
        let options =
            OpenOptions { connections: 2, notify: false, record_later, ..OpenOptions::default() };
        Ok(Self { store: PgStore::new(url, &options)? })
    }

    /// The same on a table that somebody else made.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn on_layout(url: &str, layout: Arc<Layout>) -> StoreResult<Self> {
        let options = OpenOptions {
            connections: 2,
            notify: false,
            layout: Some(layout),
            ..OpenOptions::default()
        };
        Ok(Self { store: PgStore::new(url, &options)? })
    }

    /// A relay that lives for so long, to take for.
    ///
    /// # Errors
    /// When the database refuses, or cannot be reached.
    pub async fn relay(&self, claim_time: Duration) -> StoreResult<RelayId> {
        let relay = RelayId::random();
        let beat = Heartbeat { relay, name: "bare", lanes: 0, held: &[], claim_time };
        self.store.beat(&beat).await?;
        Ok(relay)
    }

    /// Takes parcels and reads their messages, and returns the settlements that record all of them as
    /// sent, one for each claim; none when there are no parcels.
    ///
    /// # Errors
    /// When the database refuses, or cannot be reached.
    pub async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Settlement>> {
        let client = self.store.connection().await?;
        self.store.know_lanes(&client, take.quotas).await?;
        let taking = self.store.taking_connection().await?;
        let failed = |e| store_error(DOING, e);
        let found = self
            .store
            .take_parcels(&taking, take, parcel_token(), (Which::Fresh, true), false)
            .await
            .map_err(failed)?;
        let read = taking.prepare_cached(READ_PARCELS).await.map_err(failed)?;
        let mut settlements = Vec::new();
        if let Some(HeldParcels { token, .. }) = found.claim {
            let params: [&(dyn ToSql + Sync); 2] = [&clamp_i32(take.payload_limit), &token.0];
            let rows = taking.run(&read, &params).await.map_err(failed)?;
            let verdicts = rows.iter().map(sent).collect::<Result<_, _>>().map_err(failed)?;
            settlements.push(Settlement { fence: Fence::Claim(token), verdicts, finished: true });
        }
        if self.store.lanes.is_to_rise(take.quotas, !settlements.is_empty()) {
            self.store.rise(&client, take.quotas).await.map_err(failed)?;
        }
        Ok(settlements)
    }

    /// Records outcomes, and returns how many messages they changed.
    ///
    /// # Errors
    /// When the database refuses, or cannot be reached.
    pub async fn settle(&self, settlements: &[Settlement]) -> StoreResult<usize> {
        let mut client = self.store.connection().await?;
        let verdicts: usize = settlements.iter().map(|one| one.verdicts.len()).sum();
        loop {
            // As a relay does: what meets a lock is said again, and what was applied stays so.
            let settled = settle(&mut client, settlements, &self.store.recording).await?;
            if settled.locked.is_empty() {
                return Ok(verdicts - settled.late.len());
            }
        }
    }
}

fn sent(row: &Row) -> Result<Verdict, Error> {
    Ok(Verdict { seq: row.try_get("seq")?, id: id(row, 0)?, fate: Fate::Sent })
}
