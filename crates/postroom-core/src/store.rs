//! The seam to the outbox on a database, split by capability.
//!
//! One contract suite (`postroom-testkit`) runs over every implementation.

use crate::{Message, NewMessage, Record, Status};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::time::Duration;
use uuid::Uuid;

/// The random mark of one claim. Random, since a crashed database can reissue a counter.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub Uuid);

impl Token {
    /// A fresh token.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// How many messages may be taken for one integration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Quota {
    /// The integration.
    pub integration: String,
    /// The most rows.
    pub rows: usize,
}

/// A wish for due messages.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    /// Who takes them.
    pub worker: &'a str,
    /// From which integrations, and how many of each.
    pub quotas: &'a [Quota],
    /// The most rows over all of them.
    pub rows: usize,
    /// The most bytes of content; a single message may exceed it.
    pub bytes: usize,
    /// Content larger than this is not read: such messages come with a [`ContentFault`].
    pub payload_limit: usize,
    /// How long the claim lasts unless extended.
    pub claim_time: Duration,
}

/// Messages taken under one token.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The token that fences them.
    pub token: Token,
    /// What was taken, by due time.
    pub messages: Vec<Taken>,
}

/// One taken message.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The message.
    pub message: Message,
    /// How often it was rescued since its last known attempt.
    pub rescues: u32,
    /// Why its content cannot be delivered, if so.
    pub fault: Option<ContentFault>,
}

/// Why a row's content cannot be delivered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ContentFault {
    /// The payload is over the relay's limit.
    #[error(
        "the payload is over the limit of {limit} bytes: raise relay.payload_limit, or enqueue a reference instead"
    )]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The headers are JSON but no object.
    #[error("the headers are no JSON object: correct the row and set it back to PENDING")]
    HeadersNoObject,
}

/// What becomes of a taken message.
#[derive(Clone, Debug)]
pub enum Fate {
    /// Acknowledged: SENT.
    Sent,
    /// FAILED, due again after the delay by the database's clock.
    Failed {
        /// From now until it is due.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// DEAD, announced in the same transaction if there is an announcement.
    Dead {
        /// Why it died.
        error: String,
        /// Whether a failed attempt led here, or nothing was tried.
        attempted: bool,
        /// The message that tells of it.
        announcement: Option<Box<NewMessage>>,
    },
    /// Back to its queue, untouched.
    Released,
}

/// A fate for one message of a batch.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The message's `seq`.
    pub seq: i64,
    /// The message's id.
    pub id: Uuid,
    /// What becomes of it.
    pub fate: Fate,
}

/// Verdicts on messages of one batch.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The batch's token.
    pub token: Token,
    /// At most one per message.
    pub verdicts: Vec<Verdict>,
    /// Whether nothing of the batch is left after this, so that the claim can go too.
    pub finished: bool,
}

/// What a settlement changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settled {
    /// The `seq` of verdicts that came too late: the claim was lost, and nothing was changed.
    pub late: Vec<i64>,
}

/// Taking and settling.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Takes due messages under one fresh token, by due time within each integration. Never
    /// takes one that another claim holds, and none that was rescued (see
    /// [`take_rescued`](Self::take_rescued)). `None` when nothing is due.
    async fn take(&self, take: &Take<'_>) -> StoreResult<Option<Batch>>;

    /// Takes at most one rescued message per integration, each under a token of its own, so that
    /// a message that kills its relay takes no neighbour along.
    async fn take_rescued(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>>;

    /// Settles verdicts. Each settlement is applied whole or not at all, and only to deliveries
    /// that still carry its token. Safe to repeat when the outcome of a call is unknown.
    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled>;

    /// Extends claims by `claim_time` from now. Returns the tokens that are lost.
    async fn extend(&self, tokens: &[Token], claim_time: Duration) -> StoreResult<Vec<Token>>;

    /// A signal for new messages, where the database has one.
    async fn wake(&self) -> Option<Box<dyn Wake>>;
}

/// Tells an idle relay of new messages.
#[async_trait]
pub trait Wake: Send {
    /// Waits for a signal. May miss one: polling is the floor. Cancel safe.
    async fn woken(&mut self);

    /// While busy, signals are not wanted and producers need not send them.
    async fn busy(&mut self, busy: bool);
}

/// How much is waiting, for one integration.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct LaneBacklog {
    /// The integration.
    pub integration: String,
    /// Never tried, not claimed.
    pub pending: u64,
    /// Claimed by some relay.
    pub claimed: u64,
    /// Tried, to be tried again.
    pub failed: u64,
    /// Dead.
    pub dead: u64,
    /// How long the oldest due message has been due, in milliseconds.
    pub lag_ms: u64,
}

/// How much is waiting, over all integrations.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Backlog {
    /// By integration, ordered by name.
    pub lanes: Vec<LaneBacklog>,
}

impl Backlog {
    /// The sum of one count over all lanes.
    pub fn total(&self, count: impl Fn(&LaneBacklog) -> u64) -> u64 {
        self.lanes.iter().map(count).sum()
    }

    /// The longest lag.
    #[must_use]
    pub fn lag(&self) -> Duration {
        Duration::from_millis(self.lanes.iter().map(|lane| lane.lag_ms).max().unwrap_or(0))
    }
}

/// Keeping the outbox right while relays come and go.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Frees messages whose claim has expired, at most `limit` claims. A message that was lost
    /// alone has an attempt counted. Returns how many were freed.
    async fn rescue(&self, limit: usize) -> StoreResult<u64>;

    /// Deletes SENT messages older than `older_than`, at most `limit`. Returns how many. Dead
    /// deliveries whose message was deleted go too: no claim ever comes by to find them.
    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64>;

    /// Counts what is waiting; its cost follows the backlog, never the history.
    async fn backlog(&self) -> StoreResult<Backlog>;

    /// Whether the database answers and has the schema this program needs.
    async fn ready(&self) -> StoreResult<()>;

    /// Mends what triggers could not see, where the database needs it: open messages without a
    /// delivery get one. Returns how many.
    async fn reconcile(&self) -> StoreResult<u64>;

    /// Whether a relay reconciles when it starts, because the database lets a producer override
    /// what the triggers do.
    fn reconciles_at_start(&self) -> bool {
        false
    }
}

/// Whether an enqueue wrote a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Enqueued {
    /// A new message with this id.
    New(Uuid),
    /// The same event for the same integration was there; this is the first one's id, and its
    /// content stays as it was.
    Duplicate(Uuid),
}

impl Enqueued {
    /// The message's id, new or not.
    #[must_use]
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether a row was written.
    #[must_use]
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// Which messages to list. What is not set matches everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// By status.
    pub status: Option<Status>,
    /// By integration.
    pub integration: Option<String>,
    /// Only messages with a `seq` below this one: the last of the page before.
    pub before: Option<i64>,
    /// The most rows.
    pub limit: usize,
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

/// Looking and enqueueing, for tools and tests. Applications enqueue in their own transaction
/// through the `postroom` crate instead.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Enqueues one message in a transaction of its own.
    async fn enqueue(&self, message: &NewMessage) -> StoreResult<Enqueued>;

    /// One message with its state.
    async fn find(&self, id: Uuid) -> StoreResult<Option<Record>>;

    /// Messages with their state, newest first.
    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>>;

    /// Counts by status; its cost follows the history.
    async fn status_counts(&self) -> StoreResult<StatusCounts>;

    /// The integrations that have open messages.
    async fn integrations(&self) -> StoreResult<Vec<String>>;

    /// The token under which `worker` holds the message, with its `seq`.
    async fn claim_of(&self, worker: &str, id: Uuid) -> StoreResult<Option<(Token, i64)>>;

    /// The database's clock.
    async fn now(&self) -> StoreResult<DateTime<Utc>>;
}

/// The whole outbox on one database.
pub trait Store: Claims + Upkeep + Admin {}

impl<T: Claims + Upkeep + Admin> Store for T {}

/// What a store's methods return.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct StoreError {
    /// What to do about it.
    pub kind: StoreErrorKind,
    /// What was being done, and what the operator can do.
    pub context: String,
    /// The driver's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// How a store's error is to be met.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// Cannot be reached, or went away: back off and try again.
    Unavailable,
    /// Lost to a concurrent transaction (deadlock, serialization, busy): try again at once.
    Conflict,
    /// The schema is missing, older or newer: `postroom migrate`, or another version.
    Schema,
    /// The database refused it: trying again does not help.
    Refused,
}

impl StoreError {
    /// An error with its cause.
    pub fn new(
        kind: StoreErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, context: context.into(), source: Some(source.into()) }
    }

    /// An error that is its own cause.
    pub fn plain(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }
}
