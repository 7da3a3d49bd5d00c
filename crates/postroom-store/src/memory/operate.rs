//! What operators do to messages.

use super::MemoryStore;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, Key, NewAction, Operate, Status, StoreError, StoreErrorKind, StoreResult,
};
use std::time::Duration;
use uuid::Uuid;

fn not_built<T>() -> StoreResult<T> {
    Err(StoreError::plain(StoreErrorKind::Refused, "not built yet"))
}

#[async_trait]
impl Operate for MemoryStore {
    async fn begin_action(&self, _: &NewAction<'_>) -> StoreResult<ActionId> {
        not_built()
    }
    async fn actions(&self, _: Option<ActionId>, _: usize) -> StoreResult<Vec<Action>> {
        not_built()
    }
    async fn redrive(&self, _: ActionId, _: &[Key]) -> StoreResult<u64> {
        not_built()
    }
    async fn replay(&self, _: ActionId, _: &[Key], _: bool) -> StoreResult<Vec<Uuid>> {
        not_built()
    }
    async fn release(&self, _: ActionId, _: &[Key]) -> StoreResult<u64> {
        not_built()
    }
    async fn cancel(&self, _: ActionId, _: &[Key]) -> StoreResult<u64> {
        not_built()
    }
    async fn prune_on_record(
        &self,
        _: ActionId,
        _: Status,
        _: Duration,
        _: usize,
    ) -> StoreResult<u64> {
        not_built()
    }
}
