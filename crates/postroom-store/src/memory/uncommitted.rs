//! A producer's transaction that stays open. Producers in other processes commit when they like: a
//! number that was drawn early may become visible late. Tests and simulations meet that here.

use super::MemoryStore;
use crate::intake::check;
use postroom_core::{Enqueued, NewMessage, StoreResult};

/// Messages that have their numbers, those of their parcels too, and that nobody sees yet. Dropped, it
/// is rolled back, and the numbers are never used.
#[must_use = "what is not committed is rolled back"]
pub struct Uncommitted {
    store: MemoryStore,
    transaction: u64,
}

impl MemoryStore {
    /// Inserts messages as [`accept`](postroom_core::Intake::accept) does, in a transaction that stays
    /// open. Meant for tests: applications cannot reach this store's transactions.
    ///
    /// # Errors
    /// Those of `accept`. Until it has ended, the same event is a conflict for others, where a database
    /// would make them wait.
    pub fn insert_uncommitted(&self, batch: &[NewMessage]) -> StoreResult<Uncommitted> {
        check(batch, None)?;
        let now = self.clock.now();
        let mut tables = self.lock();
        let staged = tables.stage_new(batch, now)?;
        tables.last_transaction += 1;
        let transaction = tables.last_transaction;
        tables.uncommitted.insert(transaction, staged);
        Ok(Uncommitted { store: self.clone(), transaction })
    }
}

impl Uncommitted {
    /// Shows everybody the messages. One answer for each of them, in their order.
    pub fn commit(self) -> Vec<Enqueued> {
        let mut tables = self.store.lock();
        let staged = tables.uncommitted.remove(&self.transaction);
        let answers = staged.map(|staged| tables.commit(staged));
        drop(tables);
        self.store.written.signal();
        answers.unwrap_or_default()
    }
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        self.store.lock().uncommitted.remove(&self.transaction);
    }
}
