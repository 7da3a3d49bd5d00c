//! Looking up what jobs refer to.

use super::MemoryStore;
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, StoreResult};
use uuid::Uuid;

#[async_trait]
impl Dispatches for MemoryStore {
    async fn dispatched(&self, ids: &[Uuid]) -> StoreResult<Vec<Dispatched>> {
        let tables = self.lock();
        let find = |id: &Uuid| {
            let seq = tables.seq_of(*id)?;
            let (row, delivery) = (tables.messages.get(&seq)?, tables.deliveries.get(seq)?);
            // One that was closed by hand while it was claimed counts as gone.
            let is_open = matches!(row.status.as_str(), "PENDING" | "FAILED") && !delivery.dead;
            let number = delivery.dispatch.saturating_add(1);
            is_open.then(|| Dispatched { message: row.message.clone(), number })
        };
        Ok(ids.iter().filter_map(find).collect())
    }
}
