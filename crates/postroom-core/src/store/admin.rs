//! Looking at messages.

use super::{StoreResult, Token};
use crate::{MessageId, Record, Status};
use async_trait::async_trait;
use chrono::{DateTime, Utc};

/// Which messages. What is not set matches everything.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filter {
    /// By status.
    pub status: Option<Status>,
    /// By integration.
    pub integration: Option<String>,
    /// By tenant.
    pub tenant: Option<String>,
    /// By event type.
    pub event_type: Option<String>,
    /// By correlation id.
    pub correlation: Option<String>,
    /// By event id.
    pub event_id: Option<String>,
    /// By stream.
    pub stream: Option<String>,
    /// Only messages whose last error contains this text, in upper or lower case.
    pub error: Option<String>,
    /// Only messages created at this moment or later.
    pub since: Option<DateTime<Utc>>,
    /// Only messages created before this moment.
    pub until: Option<DateTime<Utc>>,
    /// Only messages with a `seq` below this one: the last of the page before.
    pub before: Option<i64>,
    /// The most rows.
    pub limit: usize,
}

impl Filter {
    /// Whether it finds this message.
    #[must_use]
    pub fn matches(&self, record: &Record) -> bool {
        let message = &record.message;
        let is =
            |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|one| one == text);
        let has =
            |wanted: &Option<String>, text: &Option<String>| wanted.is_none() || wanted == text;
        self.status.is_none_or(|status| record.status == status.as_str())
            && is(&self.integration, &message.integration)
            && has(&self.tenant, &message.tenant_id)
            && is(&self.event_type, &message.event_type)
            && has(&self.correlation, &message.correlation_id)
            && is(&self.event_id, &message.event_id)
            && is(&self.stream, &message.stream_id)
            && self.error.as_ref().is_none_or(|part| {
                let error = record.last_error.as_ref().map(|error| error.to_lowercase());
                error.is_some_and(|error| error.contains(&part.to_lowercase()))
            })
            && self.since.is_none_or(|since| message.created_at >= since)
            && self.until.is_none_or(|until| message.created_at < until)
            && self.before.is_none_or(|before| message.seq < before)
    }
}

/// The most bytes of a receiver's response that are kept with a failed attempt.
pub const RESPONSE_BYTES: usize = 2_048;

/// How many failed attempts are kept for one message; older ones go.
pub const ATTEMPTS_KEPT: usize = 100;

/// One failed attempt.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Attempt {
    /// When it ended, by the database's clock.
    pub at: DateTime<Utc>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why it failed.
    pub error: String,
    /// What the receiver answered, where its integration keeps that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
}

/// How a failed attempt ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    /// It might work later.
    Retry,
    /// The message will never be accepted.
    Reject,
    /// Its relay died with this message alone in hand.
    Lost,
}

impl AttemptOutcome {
    /// The word it is stored and shown as.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Reject => "reject",
            Self::Lost => "lost",
        }
    }

    /// The outcome that is stored as `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Retry, Self::Reject, Self::Lost].into_iter().find(|one| one.as_str() == word)
    }
}

/// Messages by recorded status, over the whole table.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StatusCounts {
    /// By name, ordered by name; statuses nobody knows included.
    pub counts: Vec<(String, u64)>,
}

impl StatusCounts {
    /// The count of one status.
    #[must_use]
    pub fn of(&self, status: Status) -> u64 {
        self.counts.iter().find(|(name, _)| name == status.as_str()).map_or(0, |(_, n)| *n)
    }
}

/// Looking at messages, for tools and tests.
#[async_trait]
pub trait Admin: Send + Sync {
    /// One message with its state.
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>>;

    /// The failed attempts of one message, oldest first. The latest [`ATTEMPTS_KEPT`] are kept.
    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>>;

    /// Messages with their state, newest first.
    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>>;

    /// Counts by status; its cost follows the history.
    async fn status_counts(&self) -> StoreResult<StatusCounts>;

    /// The integrations that have open messages.
    async fn integrations(&self) -> StoreResult<Vec<String>>;

    /// The token under which `worker` holds the message, with its `seq`.
    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>>;

    /// The database's clock.
    async fn now(&self) -> StoreResult<DateTime<Utc>>;
}
