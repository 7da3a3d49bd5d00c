//! What must be true, kept beside the store and independently of it.
//!
//! Every step that reaches the store or a destination is told to the books, which follow the
//! rules on their own and compare. What does not fit is a violation of safety.

mod claims;
mod destinations;
mod end;

use super::journal::{Entry, Journal};
use chrono::{DateTime, Utc};
use postroom_core::{DEAD_EVENT_TYPE, Message, Record, RelayId, Rescued, Status, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

pub(super) struct Books(Mutex<State>);

struct State {
    began: Instant,
    messages: BTreeMap<i64, Known>,
    claims: BTreeMap<Token, Claim>,
    /// Until when each relay's row lasts.
    rows: BTreeMap<RelayId, DateTime<Utc>>,
    /// When a relay's message was last accepted, by relay and lane.
    accepted: BTreeMap<(usize, String), Instant>,
    /// The largest batch that any relay takes.
    batch_max: usize,
    journal: Journal,
    violations: Vec<String>,
}

/// One message, as it must be.
struct Known {
    event_id: String,
    integration: String,
    max_attempts: u32,
    status: Status,
    attempts: u32,
    /// Since its last known attempt.
    rescues: u32,
    /// How many relays it has killed since then.
    kills: u32,
    /// When a relay's destination first refused it.
    refused: BTreeMap<usize, Instant>,
    holder: Option<Token>,
    tries: Vec<Try>,
    /// How often its destination did the work.
    deliveries: u32,
    announced: bool,
    is_announcement: bool,
}

/// One claim, as it must be.
struct Claim {
    relay: usize,
    /// The row whose heartbeat keeps it.
    row: RelayId,
    since: DateTime<Utc>,
    /// Its relay does not know it, and has given it up.
    given_up: bool,
    /// Which rescued messages it holds, if it does.
    of: Option<Rescued>,
    /// The database refused what was to be recorded under it.
    refused: bool,
    /// It expired, and what it held was freed.
    rescued: bool,
    /// It is in the store's table.
    present: bool,
    /// Its relay knows that it is lost.
    told_lost: bool,
    /// What was recorded under it.
    applied: BTreeSet<i64>,
}

/// One sink call's part that concerns one message.
struct Try {
    token: Token,
    said: Option<Said>,
}

/// How a try ended for the relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Said {
    Delivered,
    Retry,
    Reject,
    Refuse,
    /// It panicked, timed out, was cut off or said nothing.
    Nothing,
}

impl Books {
    pub(super) fn new(batch_max: usize) -> Self {
        Self(Mutex::new(State {
            accepted: BTreeMap::new(),
            batch_max,
            began: Instant::now(),
            messages: BTreeMap::new(),
            claims: BTreeMap::new(),
            rows: BTreeMap::new(),
            journal: Journal::default(),
            violations: Vec::new(),
        }))
    }

    /// A producer has committed this message.
    pub(super) fn committed(&self, record: &Record) {
        let mut state = self.state();
        state.note("committed", None, None, Some(record.message.seq));
        state.add(&record.message);
    }

    pub(super) fn note(&self, what: &'static str, relay: Option<usize>) {
        self.state().note(what, relay, None, None);
    }

    pub(super) fn violation(&self, what: String) {
        self.state().violation(what);
    }

    pub(super) fn take(&self) -> (Vec<String>, Journal) {
        let state = &mut *self.state();
        (std::mem::take(&mut state.violations), std::mem::take(&mut state.journal))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn note(
        &mut self,
        what: &'static str,
        relay: Option<usize>,
        token: Option<Token>,
        seq: Option<i64>,
    ) {
        self.journal.push(Entry { at: self.began.elapsed(), what, relay, token, seq });
    }

    fn violation(&mut self, what: String) {
        self.note("VIOLATION", None, None, None);
        self.violations.push(format!("at {:.3} s: {what}", self.began.elapsed().as_secs_f64()));
    }

    fn add(&mut self, message: &Message) {
        let known = Known {
            event_id: message.event_id.clone(),
            integration: message.integration.clone(),
            kills: 0,
            refused: BTreeMap::new(),
            max_attempts: message.max_attempts,
            status: Status::Pending,
            attempts: 0,
            rescues: 0,
            holder: None,
            tries: Vec::new(),
            deliveries: 0,
            announced: false,
            is_announcement: message.event_type == DEAD_EVENT_TYPE,
        };
        self.messages.insert(message.seq, known);
    }

    /// Adds an announcement that the books meet for the first time: it must tell of a death, and
    /// be the first that does. Anything else was never committed.
    fn meet(&mut self, message: &Message) {
        if self.messages.contains_key(&message.seq) {
            return;
        }
        let told_of = message.causation_id.as_deref();
        let dead = self
            .messages
            .values_mut()
            .find(|known| !known.is_announcement && Some(known.event_id.as_str()) == told_of)
            .filter(|known| known.status == Status::Dead && !known.announced);
        match dead {
            Some(dead) if message.event_type == DEAD_EVENT_TYPE => {
                dead.announced = true;
                self.note("announced", None, None, Some(message.seq));
                self.add(message);
            }
            _ => self.violation(format!("{message:?} was never committed")),
        }
    }

    /// The store must show a message as the books do.
    fn compare(&mut self, record: &Record) {
        let seq = record.message.seq;
        let Some(known) = self.messages.get(&seq) else {
            return self.violation(format!("message {seq} is unknown"));
        };
        let status = if known.holder.is_some() { Status::Claimed } else { known.status };
        let (expected, found) =
            ((status.as_str(), known.attempts), (record.status.as_str(), record.message.attempts));
        if expected != found {
            self.violation(format!("message {seq} should be {expected:?}, and is {found:?}"));
        }
    }
}
