//! Taking and settling.

use super::{AttemptOutcome, RelayId, StoreResult};
use crate::{Limits, Message, MessageId, NewMessage};
use async_trait::async_trait;
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

/// How many of the `rows` of a [`Quota`] may share a claim after so many rescues: half as many each
/// time, and at least one.
#[must_use]
pub fn rows_after(rescues: u32, rows: usize) -> usize {
    rows.checked_shr(rescues).unwrap_or(0).max(1)
}

/// The most fresh messages that a store keeps in one row, and gives out together.
pub const PARCEL_MESSAGES: usize = 64;

/// Which rescued messages to take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rescued {
    /// Those that may share a claim with others. For a queue these are all of them: a queue takes
    /// no harm.
    Together,
    /// Those that were rescued so often that [`rows_after`] allows one message per claim.
    /// Its relay handles nothing else that was rescued meanwhile: when that relay dies, there is no
    /// doubt which message it was, and an attempt is counted.
    Alone,
}

/// A wish for due messages.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    /// Who takes them, as claims show it.
    pub worker: &'a str,
    /// The relay whose heartbeat keeps the claims.
    pub relay: RelayId,
    /// From which integrations, and how many of each.
    pub quotas: &'a [Quota],
    /// The most rows over all of them.
    pub rows: usize,
    /// The most bytes of content; a single message may exceed it.
    pub bytes: usize,
    /// A payload that is larger than this once it is text is not read: such messages come with a
    /// [`ContentFault`]. For headers see [`headers_limit`](Self::headers_limit).
    pub payload_limit: usize,
    /// Whether what is taken is handed over to a queue. Such a message cannot kill the relay that
    /// holds it: when the claim is lost, that counts as no rescue.
    pub for_queue: bool,
}

impl Take<'_> {
    /// Headers that are larger than this once they are text are not read: what an application may
    /// enqueue by default, or as much as a payload where that may be larger.
    #[must_use]
    pub fn headers_limit(&self) -> usize {
        self.payload_limit.max(Limits::default().headers_bytes)
    }
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
    /// The number of the dispatch that counts now: one more than those that are over.
    pub dispatch: u32,
    /// Why its content cannot be delivered, if so.
    pub fault: Option<ContentFault>,
}

/// Why a row's content cannot be delivered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ContentFault {
    /// The payload is over the relay's limit once it is text.
    #[error(
        "the payload is over the limit of {limit} bytes: raise relay.payload_limit, or enqueue a reference instead"
    )]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The headers are over the relay's limit.
    #[error(
        "the headers are over the limit of {limit} bytes: raise relay.payload_limit, or move what is large into the payload"
    )]
    HeadersTooLarge {
        /// The limit.
        limit: usize,
    },
    /// The headers are JSON but no object.
    #[error("the headers are no JSON object: correct the row and set it back to PENDING")]
    HeadersNoObject,
    /// The database cannot hand the content over, or what it hands over is no JSON.
    #[error("the content cannot be read ({reason}): correct the row and set it back to PENDING")]
    Unreadable {
        /// What went wrong, without any content.
        reason: String,
    },
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
        /// How long the attempt took.
        took: Duration,
    },
    /// DEAD, announced in the same transaction if there is an announcement.
    Dead {
        /// Why it died.
        error: String,
        /// The failed attempt that led here; `None` when nothing was tried.
        tried: Option<Tried>,
        /// The message that tells of it.
        announcement: Option<Box<NewMessage>>,
    },
    /// Back to its lane, untouched. Under [`Fence::Dispatch`]: its job is gone without a word.
    Released,
    /// Back to its lane, untouched but for its due time: due again after the delay by the database's
    /// clock. One whose message was changed by hand meanwhile follows that instead, as if released.
    Postponed {
        /// From now until it is due.
        delay: Duration,
    },
}

impl Fate {
    /// Whether another message tells of it, which is written in the same transaction.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        matches!(self, Self::Dead { announcement: Some(_), .. })
    }
}

/// The attempt that killed a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tried {
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// How long it took.
    pub took: Duration,
}

/// Whose word a settlement is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fence {
    /// The claim's holder reports: applied to what the claim holds.
    Claim(Token),
    /// The word on one dispatch, of whoever delivered it: applied to deliveries for which this
    /// dispatch counts now, whoever holds their claim, even nobody. Any verdict ends the dispatch:
    /// unless the message is SENT, its next one has the next number.
    Dispatch {
        /// The dispatch's number, from 1.
        number: u32,
        /// A fresh token, which marks what this settlement writes.
        token: Token,
        /// How many attempts had failed before this dispatch, where that is known. After a failure
        /// the message then has at least one more than that, and an attempt that its worker counted
        /// in the row itself is not counted twice.
        failed_before: Option<u32>,
    },
}

impl Fence {
    /// The token that marks what the settlement writes.
    #[must_use]
    pub fn token(self) -> Token {
        match self {
            Self::Claim(token) | Self::Dispatch { token, .. } => token,
        }
    }
}

/// Messages of one integration that were deleted before anybody delivered them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vanished {
    /// Where they would have gone.
    pub integration: String,
    /// How many.
    pub messages: u64,
    /// Whether their lane is to pause: on this table somebody may delete each row right after its INSERT.
    pub pauses: bool,
}

/// A fate for one message of a batch.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The message's `seq`.
    pub seq: i64,
    /// The message's id.
    pub id: MessageId,
    /// What becomes of it.
    pub fate: Fate,
}

/// Verdicts on messages of one batch, or on dispatches of one number.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// What has to be true of a delivery for its verdict to count.
    pub fence: Fence,
    /// At most one per message.
    pub verdicts: Vec<Verdict>,
    /// Whether nothing of the batch is thought to be left after this, so that the claim can go
    /// too. One that still holds something stays. Means nothing under [`Fence::Dispatch`].
    pub finished: bool,
}

/// What a settlement changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settled {
    /// The `seq` of verdicts that came too late: the claim was lost, or the dispatch is over, and
    /// nothing was changed.
    pub late: Vec<i64>,
    /// The `seq` of verdicts on rows that another transaction has locked: nothing was changed.
    /// Settle them again later.
    pub locked: Vec<i64>,
}

/// Taking and settling.
#[async_trait]
pub trait Claims: Send + Sync {
    /// Takes due messages, each batch under a fresh token and by due time within each integration.
    /// Never takes one that another claim holds, and none that was rescued (see
    /// [`take_rescued`](Self::take_rescued)). The quotas bound all batches together. No batch is
    /// empty, and there is none when nothing is due. Of a quota, fewer rows than
    /// [`PARCEL_MESSAGES`] may be left though more is due: what is kept together does not fit. A take
    /// that follows a [signal](Wake::woken) may leave anything, as long as it takes something; the
    /// signal comes again then.
    ///
    /// A claim lasts as long as its relay's row, which [`beat`](super::Relays::beat) keeps. Where
    /// there is something to take and the row is missing or has expired, nothing is taken, and that
    /// is a [`Conflict`](super::StoreErrorKind::Conflict): the claims would be anybody's at once.
    /// Beat first, then take again. The same goes for [`take_rescued`](Self::take_rescued).
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>>;

    /// Takes rescued messages: of each integration at most one claim, by due time, with no more
    /// messages than [`rows_after`] allows for each of them. So the claim of a message that
    /// kills its relay is halved each time, until the message is alone. Looks at the first
    /// `rows` of each quota only.
    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>>;

    /// Settles verdicts. Each settlement is applied whole or not at all, and only to deliveries
    /// that its fence lets through. Safe to repeat when the outcome of a call is unknown.
    ///
    /// Never waits long for a row that another transaction has locked: where the database can tell
    /// which rows those are, it settles all others and reports these as [locked](Settled::locked).
    /// Where it cannot, that is a [`Conflict`](super::StoreErrorKind::Conflict).
    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled>;

    /// What has vanished since this was last asked, by integration: rows that were deleted before anybody
    /// delivered them. A store that cannot tell says nothing.
    fn vanished(&self) -> Vec<Vanished> {
        Vec::new()
    }

    /// Keeps what receivers answered with the latest failed attempt of each message, which must
    /// have no response yet. What is longer than [`RESPONSE_BYTES`](super::RESPONSE_BYTES) is cut.
    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()>;

    /// A signal for new messages, where the database has one.
    async fn wake(&self) -> Option<Box<dyn Wake>>;
}

/// Tells an idle relay of new messages.
#[async_trait]
pub trait Wake: Send {
    /// Waits for a signal. May miss one: polling is the floor. Returns at once where a take that
    /// followed a signal has not looked for everything. Cancel safe.
    async fn woken(&mut self);

    /// While busy, signals are not wanted and producers need not send them.
    async fn busy(&mut self, busy: bool);
}
