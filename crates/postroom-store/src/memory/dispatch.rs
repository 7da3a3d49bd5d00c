//! Looking up what jobs refer to.

use super::MemoryStore;
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, MessageId, Status, StoreResult, Token};

#[async_trait]
impl Dispatches for MemoryStore {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        let mut tables = self.lock();
        // A message that was opened again by hand has a number of its own once that is followed.
        tables.follow_edits(None, self.clock.now());
        let find = |id: &MessageId| {
            let row = tables.row(id)?;
            let delivery = tables.deliveries.get(id);
            // What is open and has no delivery is in a parcel, and was never dispatched.
            let is_open = delivery.map_or_else(|| row.is_deliverable(), |delivery| !delivery.dead);
            let status = Status::parse(&row.status).filter(|_| is_open)?;
            let number = delivery.map_or(0, |delivery| delivery.dispatch).saturating_add(1);
            let (message, last_error) = (row.message.clone(), row.last_error.clone());
            Some(Dispatched { message, number, status, last_error })
        };
        Ok(ids.iter().filter_map(find).collect())
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        for seq in seqs {
            let Some(id) = tables.messages.get(seq).map(|row| row.message.id.clone()) else {
                continue;
            };
            let Some(mut delivery) = tables.deliveries.get_mut(&id) else { continue };
            if delivery.claim != Some(claim) || !delivery.failed {
                continue;
            }
            delivery.failed = false;
            drop(delivery);
            if let Some(row) = tables.messages.get_mut(seq).filter(|row| row.status == "FAILED") {
                row.status = "PENDING".to_owned();
                row.updated_at = now;
            }
        }
        Ok(Vec::new())
    }
}
