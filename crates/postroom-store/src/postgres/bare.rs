//! The statements of the hot path with nothing around them: what benchmarks compare a relay with.
//!
//! Statements, parameters and transactions are the store's own, called through the same functions,
//! so that a benchmark cannot fall behind the store.

use super::PgStore;
use super::claims::{TakeParams, take_rows};
use super::error::store_error;
use super::marks::{BEGINNING, Place};
use super::settle::settle;
use crate::OpenOptions;
use postroom_core::{Fate, Fence, Settlement, StoreResult, Take, Token, Verdict};
use tokio_postgres::{Error, Row};

const DOING: &str = "running bare statements";

/// One connection. Rows are not turned into messages, and nothing is looked up again.
#[derive(Debug)]
pub struct Bare {
    store: PgStore,
    /// Where the last take ended, as a relay remembers it for each lane.
    mark: Place,
}

impl Bare {
    /// Connects on first use.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn new(url: &str) -> StoreResult<Self> {
        let options = OpenOptions { connections: 1, notify: false, ..OpenOptions::default() };
        Ok(Self { store: PgStore::new(url, &options)?, mark: BEGINNING })
    }

    /// Takes due messages after those of the last take, and returns the settlement that records
    /// all of them as sent; `None` when nothing is due there.
    ///
    /// # Errors
    /// When the database refuses, or cannot be reached.
    pub async fn take(&mut self, take: &Take<'_>) -> StoreResult<Option<Settlement>> {
        let client = self.store.connection().await?;
        let token = Token::random();
        let places = vec![self.mark; take.quotas.len()];
        let params = TakeParams::of(take, token, &places);
        let rows = take_rows(&client, &params).await.map_err(|e| store_error(DOING, e))?;
        let mut verdicts = Vec::with_capacity(rows.len());
        for row in &rows {
            let (place, verdict) = sent(row).map_err(|e| store_error(DOING, e))?;
            self.mark = self.mark.max(place);
            verdicts.push(verdict);
        }
        if verdicts.is_empty() {
            return Ok(None);
        }
        Ok(Some(Settlement { fence: Fence::Claim(token), verdicts, finished: true }))
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
            let settled = settle(&mut client, settlements, true).await?;
            if settled.locked.is_empty() {
                return Ok(verdicts - settled.late.len());
            }
        }
    }
}

fn sent(row: &Row) -> Result<(Place, Verdict), Error> {
    let seq = row.try_get("seq")?;
    let place = (row.try_get("delivery_due_at")?, seq);
    Ok((place, Verdict { seq, id: row.try_get("id")?, fate: Fate::Sent }))
}
