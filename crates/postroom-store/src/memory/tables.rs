//! The tables, and the triggers that keep deliveries in step with messages.

use super::deliveries::Deliveries;
use super::refused;
use chrono::{DateTime, Utc};
use postroom_core::{
    ATTEMPTS_KEPT, Action, Attempt, Enqueued, Finding, Limits, Message, NewMessage, RawJson,
    Reconciled, Record, RelayId, StoreResult, Token, Tried, clip_error,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use uuid::{Builder, Uuid};

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
    /// The token of the store's last write. A change that leaves it alone was made by hand.
    pub(super) settled: Option<Token>,
}

/// A message that is still to be delivered.
pub(super) struct Delivery {
    pub(super) integration: String,
    pub(super) due_at: DateTime<Utc>,
    pub(super) claim: Option<Token>,
    pub(super) rescues: u32,
    /// How many dispatches are over.
    pub(super) dispatch: u32,
    pub(super) failed: bool,
    pub(super) dead: bool,
}

impl Delivery {
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

    pub(super) fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.claim.is_none() && !self.dead && self.due_at <= now
    }
}

/// One batch that a worker holds.
pub(super) struct Claim {
    pub(super) worker: String,
    pub(super) since: DateTime<Utc>,
    /// Whose heartbeat keeps it.
    pub(super) relay: RelayId,
    /// A rescued message is held alone; losing it again then counts as an attempt.
    pub(super) alone: bool,
    /// What was handed over to a queue cannot kill its relay: losing it is no rescue.
    pub(super) dispatched: bool,
}

/// A relay, while its heartbeat goes on and for some time after.
pub(super) struct RelayState {
    pub(super) name: String,
    pub(super) lanes: u32,
    pub(super) started_at: DateTime<Utc>,
    pub(super) until: DateTime<Utc>,
}

type Fence = (String, String, String, i32);

/// Messages and deliveries by `seq`, claims by token.
pub(super) struct Tables {
    tokens: StdRng,
    last_seq: i64,
    pub(super) messages: BTreeMap<i64, Row>,
    pub(super) deliveries: Deliveries,
    pub(super) claims: BTreeMap<Token, Claim>,
    pub(super) relays: BTreeMap<RelayId, RelayState>,
    /// The failed attempts of each message, oldest first.
    pub(super) attempts: BTreeMap<i64, Vec<Attempt>>,
    pub(super) actions: Vec<Action>,
    /// Positions by name.
    pub(super) checkpoints: BTreeMap<String, String>,
    seq_by_id: HashMap<Uuid, i64>,
    id_by_fence: HashMap<Fence, Uuid>,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            tokens: StdRng::seed_from_u64(rand::random()),
            last_seq: 0,
            messages: BTreeMap::new(),
            deliveries: Deliveries::default(),
            claims: BTreeMap::new(),
            relays: BTreeMap::new(),
            attempts: BTreeMap::new(),
            actions: Vec::new(),
            checkpoints: BTreeMap::new(),
            seq_by_id: HashMap::new(),
            id_by_fence: HashMap::new(),
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

    pub(super) fn enqueue(
        &mut self,
        new: &NewMessage,
        now: DateTime<Utc>,
    ) -> StoreResult<Enqueued> {
        new.validate(&Limits::default()).map_err(refused)?;
        let payload = new.payload().cloned().unwrap_or_else(|| RawJson::trusted("null"));
        let message = Message {
            id: Uuid::now_v7(),
            seq: 0,
            event_id: new.event_id.clone(),
            stream_id: new.stream_id().to_owned(),
            integration: new.integration.clone(),
            event_type: new.event_type.clone(),
            payload,
            headers: new.headers_json().cloned(),
            tenant_id: new.tenant_id.clone(),
            user_id: new.user_id.clone(),
            correlation_id: new.correlation_id.clone(),
            causation_id: new.causation_id.clone(),
            source: new.source.clone(),
            ordering_key: new.ordering_key.clone(),
            schema_version: new.schema_version,
            copy: new.copy,
            occurred_at: new.occurred_at,
            due_at: new.due_at.unwrap_or(now),
            attempts: 0,
            max_attempts: u32::try_from(new.max_attempts).unwrap_or(1),
            created_at: now,
        };
        Ok(self.insert(message, "PENDING"))
    }

    /// Inserts a message unless the fence knows it, and makes its delivery.
    pub(super) fn insert(&mut self, mut message: Message, status: &str) -> Enqueued {
        let fence = fence(&message);
        if let Some(first) = self.id_by_fence.get(&fence) {
            return Enqueued::Duplicate(*first);
        }
        // A number may be given by hand.
        if message.seq == 0 {
            let in_use = self.messages.last_key_value().map_or(0, |(seq, _)| *seq);
            message.seq = self.last_seq.max(in_use) + 1;
        }
        self.last_seq = self.last_seq.max(message.seq);
        let id = message.id;
        self.id_by_fence.insert(fence, id);
        self.seq_by_id.insert(id, message.seq);
        let row = Row {
            status: status.to_owned(),
            updated_at: message.created_at,
            sent_at: None,
            last_error: None,
            settled: None,
            message,
        };
        // One that is there belonged to another message of this number.
        self.deliveries.remove(row.message.seq);
        self.feed(&row, 0);
        self.messages.insert(row.message.seq, row);
        Enqueued::New(id)
    }

    pub(super) fn restart_numbers(&mut self) {
        self.last_seq = 0;
    }

    /// Removes a message with its attempts and leaves its delivery, as a plain DELETE does.
    pub(super) fn remove(&mut self, seq: i64) {
        self.attempts.remove(&seq);
        if let Some(row) = self.messages.remove(&seq) {
            self.seq_by_id.remove(&row.message.id);
            self.id_by_fence.remove(&fence(&row.message));
        }
    }

    /// The trigger on INSERT, and reconciliation: an open message without a delivery gets one, which
    /// has had so many dispatches. Statuses are listed, so that one nobody knows is left alone.
    pub(super) fn feed(&mut self, row: &Row, dispatch: u32) -> bool {
        let seq = row.message.seq;
        if !is_open(&row.status) || self.deliveries.contains(seq) {
            return false;
        }
        let delivery = Delivery {
            integration: row.message.integration.clone(),
            due_at: row.message.due_at,
            claim: None,
            rescues: 0,
            dispatch,
            failed: row.status == "FAILED",
            dead: row.status == "DEAD",
        };
        self.deliveries.insert(seq, delivery);
        true
    }

    /// The trigger on UPDATE: follows what was changed by hand, while no attempt is under way.
    pub(super) fn follow(&mut self, row: &Row, now: DateTime<Utc>) {
        let seq = row.message.seq;
        match self.deliveries.get(seq) {
            Some(delivery) if delivery.claim.is_some() => {}
            before => {
                let dispatch = before.map_or_else(|| unused(now), |delivery| delivery.dispatch);
                self.deliveries.remove(seq);
                self.feed(row, dispatch);
            }
        }
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

    /// Deliveries under a claim that does not exist.
    fn stray(&self) -> Vec<i64> {
        let is_stray = |token: Token| !self.claims.contains_key(&token);
        let stray = self.deliveries.iter().filter(|(_, one)| one.claim.is_some_and(is_stray));
        stray.map(|(seq, _)| seq).collect()
    }

    /// Frees them, as the messages say by now.
    pub(super) fn free_stray(&mut self) -> u64 {
        let stray = self.stray();
        for seq in &stray {
            let Some(mut delivery) = self.deliveries.get_mut(*seq) else { continue };
            delivery.claim = None;
            if let Some(row) = self.messages.get(seq) {
                delivery.follow(row);
            }
        }
        stray.len() as u64
    }

    /// Deliveries that nobody holds and that say something else than their open message.
    fn unlike(&self) -> Vec<i64> {
        let is_unlike = |(seq, delivery): &(i64, &Delivery)| {
            let row = self.messages.get(seq);
            delivery.claim.is_none() && row.is_some_and(|row| !delivery.agrees(row))
        };
        self.deliveries.iter().filter(is_unlike).map(|(seq, _)| seq).collect()
    }

    /// Makes them say the same.
    pub(super) fn follow_unlike(&mut self) -> u64 {
        let unlike = self.unlike();
        for seq in &unlike {
            if let (Some(mut delivery), Some(row)) =
                (self.deliveries.get_mut(*seq), self.messages.get(seq))
            {
                delivery.follow(row);
            }
        }
        unlike.len() as u64
    }

    /// What reconciliation would mend.
    pub(super) fn disagreements(&self) -> Vec<Finding> {
        let open = |seq: &i64| self.messages.get(seq).is_some_and(|row| is_open(&row.status));
        let unfed = self.messages.keys().filter(|seq| open(seq));
        let unfed = unfed.filter(|seq| !self.deliveries.contains(**seq)).count();
        let closed = self.deliveries.iter().filter(|(_, one)| one.claim.is_none());
        let closed = closed.filter(|(seq, _)| !open(seq)).count();
        Finding::disagreements(&Reconciled {
            made: unfed as u64,
            removed: closed as u64,
            freed: self.stray().len() as u64,
            followed: self.unlike().len() as u64,
            ..Reconciled::default()
        })
    }

    pub(super) fn seq_of(&self, id: Uuid) -> Option<i64> {
        self.seq_by_id.get(&id).copied()
    }

    /// The row as the view shows it: CLAIMED, by whom and since when, follow from the delivery.
    pub(super) fn record(&self, row: &Row) -> Record {
        let token = self.deliveries.get(row.message.seq).and_then(|delivery| delivery.claim);
        let claim = token.and_then(|token| self.claims.get(&token));
        Record {
            message: row.message.clone(),
            status: if token.is_some() { "CLAIMED".to_owned() } else { row.status.clone() },
            locked_at: claim.map(|claim| claim.since),
            locked_by: claim.map(|claim| claim.worker.clone()),
            updated_at: row.updated_at,
            sent_at: row.sent_at,
            last_error: row.last_error.clone(),
        }
    }
}

/// From where dispatches are counted for a message that is opened again, or whose delivery was lost:
/// the seconds since 2020, so that no number comes again.
pub(super) fn unused(now: DateTime<Utc>) -> u32 {
    u32::try_from(now.timestamp() - 1_577_836_800).unwrap_or(0)
}

/// Whether a message with this status has a delivery.
pub(super) fn is_open(status: &str) -> bool {
    matches!(status, "PENDING" | "FAILED" | "DEAD")
}

fn fence(message: &Message) -> Fence {
    (message.event_id.clone(), message.stream_id.clone(), message.integration.clone(), message.copy)
}
