//! The outbox in this process: for tests and simulation, and as the contract's executable
//! specification. Nothing outlives the process.
//!
//! It holds the same tables as a database does (message, parcel, delivery, claim, lane cursor, pending
//! edit, relay), changed by the same rules, so that whatever is true here is what the other stores
//! have to match. One lock stands for all of theirs.

mod admin;
mod by_hand;
mod claims;
mod content;
mod deliveries;
mod dispatch;
mod feed;
mod flaw;
mod follow;
mod inspect;
mod intake;
mod ledger;
mod operate;
mod parcels;
mod reconcile;
mod relays;
mod settle;
mod tables;
mod uncommitted;
mod upkeep;
mod view;
mod wake;

pub use by_hand::{ByHand, Counts, WholeRow};
pub use flaw::Flaw;
pub use ledger::{ClaimLook, DeliveryLook, Ledger, MessageLook, ParcelLook};
pub use uncommitted::Uncommitted;

use postroom_core::{Clock, StoreError, StoreErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::Tables;
use wake::Written;

/// An outbox in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Arc<Mutex<Tables>>,
    written: Arc<Written>,
    history: History,
}

/// What stays of messages that were delivered.
#[derive(Clone, Debug)]
struct History {
    /// Whether they are kept; otherwise they leave at completion.
    keep_sent: bool,
    /// For how long after that their events are not delivered again.
    remember_events: Duration,
}

impl MemoryStore {
    /// An empty outbox that keeps SENT messages and lives by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let history = History { keep_sent: true, remember_events: Duration::ZERO };
        Self { clock, tables: Arc::default(), written: Arc::default(), history }
    }

    /// The same outbox, with tokens that the seed repeats.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.lock().seed_tokens(seed);
        self
    }

    /// The same outbox, keeping SENT messages as history or deleting them at completion.
    #[must_use]
    pub fn keep_sent(mut self, keep_sent: bool) -> Self {
        self.history.keep_sent = keep_sent;
        self
    }

    /// The same outbox, remembering events for so long after their delivery.
    #[must_use]
    pub fn remember_events(mut self, remembered: Duration) -> Self {
        self.history.remember_events = remembered;
        self
    }

    /// What an operator, or a producer that knows only the table, does by plain SQL.
    #[must_use]
    pub fn by_hand(&self) -> ByHand<'_> {
        ByHand(self)
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(why: impl std::fmt::Display) -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, format!("the outbox refused it: {why}"))
}
