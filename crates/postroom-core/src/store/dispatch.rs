//! Messages on their way through a queue.

use super::{StoreResult, Token};
use crate::{Message, MessageId, Status};
use async_trait::async_trait;

/// A message whose job somebody holds.
#[derive(Clone, Debug)]
pub struct Dispatched {
    /// The message, as the outbox has it now.
    pub message: Message,
    /// The number of the dispatch that counts now. A job of another number is stale.
    pub number: u32,
    /// The status in the message's row. Never CLAIMED: a claim is not written there.
    pub status: Status,
    /// The last error in the message's row.
    pub last_error: Option<String>,
}

impl Dispatched {
    /// Whether the message is still to be delivered.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Failed)
    }
}

/// Looking up what jobs refer to.
#[async_trait]
pub trait Dispatches: Send + Sync {
    /// The messages with these ids that have a delivery which is not dead, in any order. Those are
    /// the messages still to be delivered, and those that somebody marked SENT or DEAD while they
    /// were claimed: their delivery is open until the dispatch is settled. Absent is what is settled
    /// or unknown, and what has a status that nobody knows.
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>>;

    /// Sets messages of a claim that are FAILED back to PENDING, before their first job of a number
    /// is added: a row that says FAILED while that job exists was then marked by the job's worker,
    /// even where it has failed before with the same error. Nothing else of a message changes, and
    /// what the claim does not hold any more is left alone. Waits for nobody who has locked a
    /// message: returns the numbers of those messages, which are still FAILED.
    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>>;
}
