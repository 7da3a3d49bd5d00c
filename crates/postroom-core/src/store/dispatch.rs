//! Messages on their way through a queue.

use super::StoreResult;
use crate::Message;
use async_trait::async_trait;
use uuid::Uuid;

/// A message whose job somebody holds.
#[derive(Clone, Debug)]
pub struct Dispatched {
    /// The message, as the outbox has it now.
    pub message: Message,
    /// The number of the dispatch that counts now. A job of another number is stale.
    pub number: u32,
}

/// Looking up what jobs refer to.
#[async_trait]
pub trait Dispatches: Send + Sync {
    /// The messages with these ids that are still to be delivered, in any order. What is SENT,
    /// DEAD or unknown is absent: nothing is to be delivered for it.
    async fn dispatched(&self, ids: &[Uuid]) -> StoreResult<Vec<Dispatched>>;
}
