//! The contract on the store in memory.

use chrono::{DateTime, Utc};
use postroom_core::{MessageId, NewMessage, Store, SystemClock};
use postroom_store::memory::MemoryStore;
use postroom_testkit::contract::{Commit, Harness, PlainRow, Save};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Memory(MemoryStore);

pub(crate) async fn start() -> Memory {
    Memory(MemoryStore::new(Arc::new(SystemClock)))
}

impl Harness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn store_without_history(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone().keep_sent(false))
    }

    async fn store_that_remembers(&self, keep_sent: bool) -> Arc<dyn Store> {
        let store = self.0.clone().keep_sent(keep_sent);
        Arc::new(store.remember_events(Duration::from_secs(3_600)))
    }

    async fn insert(&self, row: &PlainRow) -> Result<MessageId, String> {
        self.0.by_hand().insert(&row.columns()).map_err(|error| error.to_string())
    }

    async fn insert_or_skip(&self, row: &PlainRow) -> Result<(), String> {
        self.insert(row).await.map(|_| ())
    }

    async fn set_status(&self, id: &MessageId, status: &str) -> Result<(), String> {
        self.0.by_hand().set_status(id, status).map_err(|error| error.to_string())
    }

    async fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) {
        self.0.by_hand().set_due_at(id, due_at);
    }

    async fn set_integration(&self, id: &MessageId, integration: &str) {
        self.0.by_hand().set_integration(id, integration);
    }

    async fn set_unseen(&self, id: &MessageId, column: &str, value: &str) {
        self.0.by_hand().set_unseen(id, column, value).expect("updated");
    }

    async fn make_older(&self, id: &MessageId, by: Duration) {
        self.0.by_hand().make_older(id, by);
    }

    async fn delete(&self, id: &MessageId) {
        self.0.by_hand().delete(id);
    }

    async fn read_whole(&self, id: &MessageId) -> Save {
        let store = self.0.clone();
        let stale = store.by_hand().read(id).expect("a row");
        Box::pin(async move { store.by_hand().save(stale) })
    }

    async fn truncate(&self) {
        self.0.by_hand().truncate();
    }

    async fn restart_numbers(&self) {
        self.0.by_hand().restart_numbers();
    }

    async fn delete_deliveries(&self) {
        self.0.by_hand().delete_deliveries();
    }

    async fn delete_claims(&self) {
        self.0.by_hand().delete_claims();
    }

    async fn expire_claims(&self) {
        self.0.by_hand().expire_claims();
    }

    async fn deliveries(&self) -> u64 {
        self.0.by_hand().counts().deliveries as u64
    }

    async fn claims(&self) -> u64 {
        self.0.by_hand().counts().claims as u64
    }

    async fn attempts(&self) -> u64 {
        self.0.by_hand().counts().attempts as u64
    }

    async fn enqueue_uncommitted(&self, message: &NewMessage) -> Result<Commit, &'static str> {
        let open = self.0.insert_uncommitted(std::slice::from_ref(message)).expect("inserted");
        Ok(Box::pin(async move { drop(open.commit()) }))
    }

    async fn lock(&self, _: &MessageId) -> Result<Commit, &'static str> {
        Err("the store in memory has no locks on rows")
    }
}

postroom_testkit::contract_tests!(start);
