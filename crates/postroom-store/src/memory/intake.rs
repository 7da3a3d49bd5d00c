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
        }
        let accepted = tables.enqueue(batch, now)?;
        if let Some(checkpoint) = checkpoint {
            tables.checkpoints.insert(checkpoint.name.clone(), checkpoint.position.clone());
        }
        drop(tables);
        self.written.signal();
        Ok(accepted)
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        Ok(self.lock().checkpoints.get(name).cloned())
    }
}
