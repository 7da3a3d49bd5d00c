//! What an operator does to messages, each time on record.

use super::StoreResult;
use crate::{MessageId, Status};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// One message, as an operation names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Key {
    /// Its `seq`.
    pub seq: i64,
    /// Its id.
    pub id: MessageId,
}

/// What can be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    /// Dead messages become PENDING again, with all their attempts.
    Redrive,
    /// Sent messages are sent again, as new rows.
    Replay,
    /// Claimed messages are taken from their relay and become due.
    Release,
    /// Waiting messages become DEAD with the error `cancelled`.
    Cancel,
    /// Old messages are deleted.
    Prune,
    /// Messages and deliveries are made to agree.
    Reconcile,
}

impl Operation {
    /// The word it is stored and shown as.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Replay => "replay",
            Self::Release => "release",
            Self::Cancel => "cancel",
            Self::Prune => "prune",
            Self::Reconcile => "reconcile",
        }
    }
}

/// An operation as it goes on record, before it changes anything.
#[derive(Clone, Copy, Debug)]
pub struct NewAction<'a> {
    /// Who does it.
    pub actor: &'a str,
    /// What is done.
    pub operation: Operation,
    /// To which messages: an id, or the filter in words.
    pub target: &'a str,
}

/// The record of an operation that is being carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ActionId(pub i64);

/// An operation on record.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Action {
    /// Orders the record.
    pub id: i64,
    /// When it began, by the database's clock.
    pub at: DateTime<Utc>,
    /// Who did it.
    pub actor: String,
    /// What was done.
    pub operation: String,
    /// To which messages.
    pub target: String,
    /// How many messages it changed.
    pub messages: u64,
}

/// Operations on messages. Each names the record it belongs to, and adds the number of messages
/// it changed to that record in the same transaction: the record is true even if the operator's
/// program is killed half-way. What is not in the state an operation expects is left alone and
/// not counted, so that an operation said twice happens once.
#[async_trait]
pub trait Operate: Send + Sync {
    /// Puts an operation on record, with no message changed so far.
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId>;

    /// What was done, newest first: at most `limit`, and only those before `before`.
    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>>;

    /// Adds to the record of an operation that is carried out in other ways than these, such as a
    /// reconciliation.
    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()>;

    /// DEAD → PENDING, due now, with no attempt used. The history of attempts stays.
    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64>;

    /// SENT messages again, as new PENDING rows due now, and returns their ids. They carry the
    /// same event id and the next free `copy`, or a fresh event id and copy 0 when the effect is
    /// to be repeated; the header `postroom-replay-of` names the row they were made from.
    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<MessageId>>;

    /// CLAIMED → PENDING or FAILED as it was before, due now. The relay that held the message
    /// comes too late with its outcome, so a delivery under way may happen twice.
    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64>;

    /// PENDING | FAILED → DEAD with the error `cancelled`. A claimed message is left alone.
    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64>;

    /// Deletes SENT or DEAD messages (`status` is one of the two) that became so more than
    /// `older_than` ago, at most `limit`, with their attempts.
    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64>;

    /// How many messages [`prune_on_record`](Self::prune_on_record) would delete in all. Its cost
    /// follows what it counts.
    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64>;
}

/// The header of a replay that names the message it was made from.
pub const REPLAY_HEADER: &str = "postroom-replay-of";

/// The error of a message that was cancelled.
pub const CANCELLED: &str = "cancelled";
