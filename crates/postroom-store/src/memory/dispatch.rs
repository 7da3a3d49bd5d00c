//! Looking up what jobs refer to.

use super::MemoryStore;
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, Status, StoreResult, Token};
use uuid::Uuid;

#[async_trait]
impl Dispatches for MemoryStore {
    async fn dispatched(&self, ids: &[Uuid]) -> StoreResult<Vec<Dispatched>> {
        let tables = self.lock();
        let find = |id: &Uuid| {
            let seq = tables.seq_of(*id)?;
            let (row, delivery) = (tables.messages.get(&seq)?, tables.deliveries.get(seq)?);
            let status = Status::parse(&row.status).filter(|_| !delivery.dead)?;
            let number = delivery.dispatch.saturating_add(1);
            let (message, last_error) = (row.message.clone(), row.last_error.clone());
            Some(Dispatched { message, number, status, last_error })
        };
        Ok(ids.iter().filter_map(find).collect())
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        for seq in seqs {
            let Some(mut delivery) = tables.deliveries.get_mut(*seq) else { continue };
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
