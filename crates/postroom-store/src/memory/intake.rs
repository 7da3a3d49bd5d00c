//! Taking messages in.

use super::MemoryStore;
use crate::intake::{check, expect};
use async_trait::async_trait;
use postroom_core::{Checkpoint, Enqueued, Intake, NewMessage, StoreResult};

#[async_trait]
impl Intake for MemoryStore {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        check(batch, checkpoint)?;
        let now = self.clock.now();
        let mut tables = self.lock();
        if let Some(checkpoint) = checkpoint {
            expect(checkpoint, tables.checkpoints.get(&checkpoint.name).map(String::as_str))?;
            tables.checkpoints.insert(checkpoint.name.clone(), checkpoint.position.clone());
        }
        // All were checked: none is refused half-way.
        let accepted = batch.iter().map(|message| tables.enqueue(message, now)).collect();
        drop(tables);
        self.written.signal();
        accepted
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.lock().checkpoints.get(name).cloned())
    }
}
