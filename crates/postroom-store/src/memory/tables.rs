//! The tables.

use super::deliveries::Deliveries;
use super::feed::Staged;
use super::flaw::Flaw;
use super::follow::PendingEdit;
use super::parcels::{ParcelKey, Parcels};
use crate::remembered::DELIVERED_BEFORE;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    ATTEMPTS_KEPT, Action, Attempt, Message, MessageId, REPLAY_HEADER, RawJson, RelayId, Token,
    Tried, clip_error,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use uuid::Builder;

/// The end of the column's type on a database: a count stays there.
pub(super) const ATTEMPTS_MAX: u32 = i32::MAX as u32;

/// One message with its recorded state.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) message: Message,
    pub(super) status: String,
    pub(super) updated_at: DateTime<Utc>,
    pub(super) sent_at: Option<DateTime<Utc>>,
    pub(super) last_error: Option<String>,
    /// The token of the store's last write: a settlement whose answer was lost is recognised by it.
    pub(super) settled: Option<Token>,
}

impl Row {
    pub(super) fn new(message: Message, status: &str) -> Self {
        Self {
            status: status.to_owned(),
            updated_at: message.created_at,
            sent_at: None,
            last_error: None,
            settled: None,
            message,
        }
    }

    /// Whether relays deliver it.
    pub(super) fn is_deliverable(&self) -> bool {
        matches!(self.status.as_str(), "PENDING" | "FAILED")
    }
}

/// A message that is neither SENT nor fresh: delayed, failed, dead, opened again, rescued or given
/// back.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) seq: i64,
    pub(super) integration: String,
    pub(super) due_at: DateTime<Utc>,
    /// When it was due for the first time, or again after it was put off or changed by hand.
    pub(super) since: DateTime<Utc>,
    pub(super) claim: Option<Token>,
    pub(super) rescues: u32,
    /// How many dispatches are over.
    pub(super) dispatch: u32,
    pub(super) failed: bool,
    pub(super) dead: bool,
}

impl Delivery {
    /// That of an open message, as it says, which nobody holds and which was never dispatched.
    pub(super) fn of(row: &Row) -> Self {
        Self {
            seq: row.message.seq,
            integration: row.message.integration.clone(),
            due_at: row.message.due_at,
            since: row.message.due_at,
            claim: None,
            rescues: 0,
            dispatch: 0,
            failed: row.status == "FAILED",
            dead: row.status == "DEAD",
        }
    }

    /// Says what its message says, where that is open.
    pub(super) fn follow(&mut self, row: &Row) {
        if is_open(&row.status) {
            self.integration.clone_from(&row.message.integration);
            self.due_at = row.message.due_at;
            self.failed = row.status == "FAILED";
            self.dead = row.status == "DEAD";
        }
    }

    /// Whether it says what its message says, where that is open.
    pub(super) fn agrees(&self, row: &Row) -> bool {
        !is_open(&row.status)
            || self.integration == row.message.integration
                && self.due_at == row.message.due_at
                && self.failed == (row.status == "FAILED")
                && self.dead == (row.status == "DEAD")
    }
}

/// One batch that a worker holds. It names what it holds: parcels, which are not written to, or
/// deliveries, which carry its token.
pub(super) struct Claim {
    pub(super) worker: String,
    pub(super) since: DateTime<Utc>,
    /// Whose heartbeat keeps it.
    pub(super) relay: RelayId,
    /// A rescued message is held alone; losing it again then counts as an attempt.
    pub(super) alone: bool,
    /// What was handed over to a queue cannot kill its relay: losing it is no rescue.
    pub(super) dispatched: bool,
    /// None when it holds deliveries.
    pub(super) parcels: BTreeSet<ParcelKey>,
}

/// How far a lane's parcels were taken.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// No parcel above it was ever taken.
    pub(super) mark: i64,
    /// When somebody last looked below it for what had committed late.
    pub(super) swept_at: DateTime<Utc>,
}

/// A relay, while its heartbeat goes on and for some time after.
pub(super) struct RelayState {
    pub(super) name: String,
    pub(super) lanes: u32,
    pub(super) started_at: DateTime<Utc>,
    pub(super) until: DateTime<Utc>,
}

pub(super) type Fence = (String, String, String, i32);

/// Messages by `seq`, deliveries by the id of their message, claims by token.
pub(super) struct Tables {
    tokens: StdRng,
    pub(super) last_seq: i64,
    pub(super) last_parcel: i64,
    pub(super) last_transaction: u64,
    pub(super) messages: BTreeMap<i64, Row>,
    pub(super) parcels: Parcels,
    pub(super) deliveries: Deliveries,
    pub(super) claims: BTreeMap<Token, Claim>,
    /// By lane.
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// In the order in which they were made.
    pub(super) pending_edits: Vec<PendingEdit>,
    /// What producers have inserted and not committed yet, by transaction.
    pub(super) uncommitted: BTreeMap<u64, Staged>,
    pub(super) relays: BTreeMap<RelayId, RelayState>,
    /// The failed attempts of each message, oldest first.
    pub(super) attempts: BTreeMap<i64, Vec<Attempt>>,
    pub(super) actions: Vec<Action>,
    /// Positions by name.
    pub(super) checkpoints: BTreeMap<String, String>,
    pub(super) seq_by_id: HashMap<MessageId, i64>,
    pub(super) id_by_fence: HashMap<Fence, MessageId>,
    /// Until when events are remembered whose messages are deleted.
    pub(super) remembered: HashMap<Fence, DateTime<Utc>>,
    /// How many takes there were.
    pub(super) takes: usize,
    pub(super) flaw: Option<Flaw>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            tokens: StdRng::seed_from_u64(rand::random()),
            last_seq: 0,
            last_parcel: 0,
            last_transaction: 0,
            messages: BTreeMap::new(),
            parcels: Parcels::default(),
            deliveries: Deliveries::default(),
            claims: BTreeMap::new(),
            cursors: BTreeMap::new(),
            pending_edits: Vec::new(),
            uncommitted: BTreeMap::new(),
            relays: BTreeMap::new(),
            attempts: BTreeMap::new(),
            actions: Vec::new(),
            checkpoints: BTreeMap::new(),
            seq_by_id: HashMap::new(),
            id_by_fence: HashMap::new(),
            remembered: HashMap::new(),
            takes: 0,
            flaw: None,
        }
    }
}

impl Tables {
    pub(super) fn seed_tokens(&mut self, seed: u64) {
        self.tokens = StdRng::seed_from_u64(seed);
    }

    pub(super) fn fresh_token(&mut self) -> Token {
        Token(Builder::from_random_bytes(self.tokens.random()).into_uuid())
    }

    /// Forgets what is to be delivered. Claims stay behind, and name nothing then.
    pub(super) fn empty_ledger(&mut self) {
        self.parcels.clear();
        self.deliveries.clear();
        self.pending_edits.clear();
    }

    pub(super) fn restart_numbers(&mut self) {
        self.last_seq = 0;
    }

    pub(super) fn seq_of(&self, id: &MessageId) -> Option<i64> {
        self.seq_by_id.get(id).copied()
    }

    pub(super) fn row(&self, id: &MessageId) -> Option<&Row> {
        self.messages.get(&self.seq_of(id)?)
    }

    pub(super) fn row_mut(&mut self, id: &MessageId) -> Option<&mut Row> {
        self.messages.get_mut(&self.seq_of(id)?)
    }

    /// Removes a message with its attempts and leaves what names it in the ledger, as a plain DELETE
    /// does.
    pub(super) fn remove(&mut self, seq: i64) {
        self.attempts.remove(&seq);
        if let Some(row) = self.messages.remove(&seq) {
            self.seq_by_id.remove(&row.message.id);
            self.id_by_fence.remove(&fence(&row.message));
        }
    }

    /// Removes a message that was delivered, and remembers its event for so long after that. One that a
    /// replay made was delivered again on purpose.
    pub(super) fn prune(&mut self, seq: i64, remembered: Duration) {
        if let Some(row) = self.messages.get(&seq)
            && !is_replay(&row.message)
            && row.last_error.as_deref() != Some(DELIVERED_BEFORE)
            && !remembered.is_zero()
        {
            let sent_at = row.sent_at.unwrap_or(row.message.created_at);
            let until = sent_at.checked_add_signed(delta(remembered));
            self.remembered.insert(fence(&row.message), until.unwrap_or(DateTime::<Utc>::MAX_UTC));
        }
        self.remove(seq);
    }

    /// Whether an event was delivered before, and its message is deleted.
    pub(super) fn remembers(&self, message: &Message, now: DateTime<Utc>) -> bool {
        !is_replay(message)
            && self.remembered.get(&fence(message)).is_some_and(|until| *until > now)
    }

    /// Keeps a failed attempt, and forgets the oldest.
    pub(super) fn note(&mut self, seq: i64, tried: Tried, error: &str, now: DateTime<Utc>) {
        if !self.messages.contains_key(&seq) {
            return;
        }
        let attempts = self.attempts.entry(seq).or_default();
        attempts.push(Attempt {
            at: now,
            took_ms: u64::try_from(tried.took.as_millis()).unwrap_or(u64::MAX),
            outcome: tried.outcome,
            error: clip_error(error),
            response: None,
        });
        let surplus = attempts.len().saturating_sub(ATTEMPTS_KEPT);
        attempts.drain(..surplus);
    }
}

/// From where dispatches are counted for a message that is opened again, or whose delivery was lost:
/// the seconds since 2020, so that no number comes again.
pub(super) fn unused(now: DateTime<Utc>) -> u32 {
    u32::try_from(now.timestamp() - 1_577_836_800).unwrap_or(0)
}

/// Whether a message with this status is in the ledger. Statuses are listed, so that one nobody knows
/// is left alone.
pub(super) fn is_open(status: &str) -> bool {
    matches!(status, "PENDING" | "FAILED" | "DEAD")
}

fn is_replay(message: &Message) -> bool {
    let headers = message.headers.as_ref().map(RawJson::as_str);
    let headers = headers.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    headers.is_some_and(|headers| headers.contains_key(REPLAY_HEADER))
}

fn delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

pub(super) fn fence(message: &Message) -> Fence {
    (message.event_id.clone(), message.stream_id.clone(), message.integration.clone(), message.copy)
}
