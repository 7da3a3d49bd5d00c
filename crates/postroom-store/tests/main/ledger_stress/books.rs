//! What happened, as those say who did it.

use postroom_core::{Batch, Key, MessageId, Token};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many of each violation are told.
const TOLD: usize = 5;

/// What is known of one message.
#[derive(Default)]
struct Page {
    /// Who delivered it, under which claim.
    delivered: Vec<(u64, Token)>,
    /// How often it may be delivered again.
    causes: Vec<&'static str>,
    /// Someone may have set it to SENT by hand.
    sent_by_hand: bool,
    /// Someone may have cancelled it, or a relay declared it dead.
    may_be_dead: bool,
    /// Who took it last.
    held: Option<Held>,
    /// How many operations that take it from its relay are under way.
    operations: usize,
    /// When the last of them ended.
    operated_at: Option<Instant>,
}

/// A claim on one message, from when and until when it surely stands.
#[derive(Clone, Copy)]
struct Held {
    token: Token,
    since: Instant,
    until: Instant,
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Event {
    RolledBack,
    Taken,
    Kill,
    Stall,
    Late,
    Locked,
    Failed,
    Released,
    Postponed,
    Dead,
    Rescued,
    Edit,
    Operation,
    Conflict,
    Reconciled,
    Recorded,
}

#[derive(Default)]
struct Written {
    committed: Vec<Key>,
    known: HashSet<MessageId>,
    pages: HashMap<MessageId, Page>,
    events: std::collections::BTreeMap<Event, u64>,
    violations: Vec<String>,
}

#[derive(Default)]
pub(super) struct Books(Mutex<Written>);

impl Books {
    fn write(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, event: Event, times: usize) {
        *self.write().events.entry(event).or_default() += times as u64;
    }

    pub(super) fn violation(&self, what: String) {
        self.write().violations.push(what);
    }

    pub(super) fn committed(&self, keys: Vec<Key>) {
        let mut books = self.write();
        books.known.extend(keys.iter().map(|key| key.id.clone()));
        books.committed.extend(keys);
    }

    /// How many messages are committed; the one at a place.
    pub(super) fn messages(&self) -> usize {
        self.write().committed.len()
    }

    pub(super) fn message(&self, place: usize) -> Key {
        self.write().committed[place].clone()
    }

    /// A batch came back from a take that was called at `called` and lasts for `until` at the least.
    /// Nobody else may hold any of it since before the call.
    pub(super) fn taken(&self, batch: &Batch, called: Instant, until: Instant) {
        let mut books = self.write();
        let now = Instant::now();
        let mut twice = Vec::new();
        for taken in &batch.messages {
            let page = books.pages.entry(taken.message.id.clone()).or_default();
            if let Some(held) = page.held
                && held.since < called
                && now < held.until
                && page.operations == 0
            {
                twice.push(format!(
                    "{} is held by {:?} and was taken by {:?}",
                    taken.message.id, held.token, batch.token
                ));
            }
            let is_fresh = page.operations == 0 && page.operated_at.is_none_or(|at| at < called);
            page.held = is_fresh.then_some(Held { token: batch.token, since: now, until });
        }
        books.violations.extend(twice);
    }

    /// A claim lasts for `until` at the least.
    pub(super) fn extended(&self, batch: &Batch, until: Instant) {
        let mut books = self.write();
        for taken in &batch.messages {
            if let Some(page) = books.pages.get_mut(&taken.message.id)
                && let Some(held) = page.held.as_mut().filter(|held| held.token == batch.token)
            {
                held.until = until;
            }
        }
    }

    /// A relay is about to let go of messages.
    pub(super) fn settling(&self, token: Token, ids: impl Iterator<Item = MessageId>) {
        let mut books = self.write();
        for id in ids {
            let page = books.pages.entry(id).or_default();
            page.held = page.held.filter(|held| held.token != token);
        }
    }

    pub(super) fn delivered(&self, relay: u64, token: Token, id: &MessageId) {
        self.write().pages.entry(id.clone()).or_default().delivered.push((relay, token));
    }

    /// Why a message may be delivered once more.
    pub(super) fn cause(&self, id: &MessageId, cause: &'static str) {
        self.write().pages.entry(id.clone()).or_default().causes.push(cause);
    }

    pub(super) fn may_be_sent_by_hand(&self, id: &MessageId) {
        self.write().pages.entry(id.clone()).or_default().sent_by_hand = true;
    }

    pub(super) fn may_be_dead(&self, id: &MessageId) {
        self.write().pages.entry(id.clone()).or_default().may_be_dead = true;
    }

    /// Somebody is about to take messages from their relays.
    pub(super) fn operation_begins(&self, keys: &[Key], cause: &'static str) {
        let mut books = self.write();
        for key in keys {
            let page = books.pages.entry(key.id.clone()).or_default();
            page.operations += 1;
            page.causes.push(cause);
        }
    }

    pub(super) fn operation_ends(&self, keys: &[Key]) {
        let mut books = self.write();
        for key in keys {
            let page = books.pages.entry(key.id.clone()).or_default();
            page.operations -= 1;
            page.operated_at = Some(Instant::now());
            page.held = None;
        }
    }

    /// Compares the books with the outbox, when nothing is under way any more.
    pub(super) fn compare(&self, found: &HashMap<MessageId, String>) {
        let mut books = self.write();
        let mut lost = Vec::new();
        let mut undelivered = Vec::new();
        let mut repeated = Vec::new();
        let mut unknown = Vec::new();
        let nothing = Page::default();
        for key in &books.committed {
            let page = books.pages.get(&key.id).unwrap_or(&nothing);
            match found.get(&key.id).map(String::as_str) {
                Some("SENT") if page.delivered.is_empty() && !page.sent_by_hand => {
                    undelivered.push(format!("{} is SENT, and nobody delivered it", key.id));
                }
                Some("SENT") => {}
                Some("DEAD") if page.may_be_dead => {}
                status => lost.push(format!("{} is {status:?}", key.id)),
            }
        }
        for (id, page) in &books.pages {
            if page.delivered.len() > 1 + page.causes.len() {
                repeated.push(format!(
                    "{id} was delivered more often than there are causes: {:?}, {:?}",
                    page.delivered, page.causes
                ));
            }
            if !page.delivered.is_empty() && !books.known.contains(id) {
                unknown.push(format!("{id} was delivered and never committed"));
            }
        }
        for told in [lost, undelivered, repeated, unknown] {
            let more = told.len().saturating_sub(TOLD);
            books.violations.extend(told.into_iter().take(TOLD));
            if more > 0 {
                books.violations.push(format!("… and {more} more"));
            }
        }
    }

    pub(super) fn figures(&self) -> String {
        let books = self.write();
        let delivered: usize = books.pages.values().map(|page| page.delivered.len()).sum();
        let repeated = books.pages.values().filter(|page| page.delivered.len() > 1).count();
        format!(
            "{} messages, {delivered} deliveries, {repeated} repeated; {:?}",
            books.committed.len(),
            books.events
        )
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.write().violations.clone()
    }
}
