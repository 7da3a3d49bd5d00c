//! Looking closer, for tools that people work with.

use super::{Filter, StoreResult};
use crate::{IdPrefix, MessageId, Record};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

/// Messages of one integration with the same last error.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct ErrorGroup {
    /// The integration.
    pub integration: String,
    /// The error that they share.
    pub error: String,
    /// How many messages.
    pub messages: u64,
    /// When the oldest of them was created.
    pub oldest: DateTime<Utc>,
    /// When the newest of them was created.
    pub newest: DateTime<Utc>,
    /// The id of one of them.
    pub example: MessageId,
}

/// How many messages of one integration are new.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Arrived {
    /// The integration.
    pub integration: String,
    /// How many messages.
    pub messages: u64,
    /// The highest `seq` among them.
    pub last: i64,
}

/// Looking closer, for tools that people work with.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The messages whose ids begin so, by id: at most `limit`. Where ids are uuids, these are
    /// [`IdPrefix::uuids`].
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>>;

    /// The messages of a filter that have an error, grouped by integration and error, the largest
    /// group first: at most `filter.limit` groups.
    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>>;

    /// How many messages have a `seq` above this one, by integration. Its cost follows what it
    /// counts.
    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>>;

    /// The highest `seq`; 0 in an outbox without messages.
    async fn last_seq(&self) -> StoreResult<i64>;

    /// The numbers of messages to follow: those above `after`, lowest first, and those that are
    /// due next; at most `limit` of each. Its cost follows the backlog.
    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>>;

    /// The messages with these numbers, in any order, without payload and headers.
    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>>;
}
