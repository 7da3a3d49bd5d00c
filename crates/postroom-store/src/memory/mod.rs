//! The outbox in this process: for tests and simulation, and as the contract's executable
//! specification. Nothing outlives the process.
//!
//! It holds the same three tables as a database does (message, delivery, claim), changed by the
//! same rules, so that whatever is true here is what the other stores have to match.

mod admin;
mod by_hand;
mod claims;
mod operate;
mod settle;
mod tables;
mod upkeep;

pub use by_hand::{ByHand, Counts};

use async_trait::async_trait;
use postroom_core::{Clock, StoreError, StoreErrorKind, Wake};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::Tables;
use tokio::sync::watch;

/// An outbox in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Arc<Mutex<Tables>>,
    written: watch::Sender<()>,
    keep_sent: bool,
}

impl MemoryStore {
    /// An empty outbox that keeps SENT messages and lives by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Arc::default(), written: watch::Sender::new(()), keep_sent: true }
    }

    /// The same outbox, keeping SENT messages as history or deleting them at completion.
    #[must_use]
    pub fn keep_sent(mut self, keep_sent: bool) -> Self {
        self.keep_sent = keep_sent;
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

/// Every write of a message is a signal.
struct MemoryWake(watch::Receiver<()>);

#[async_trait]
impl Wake for MemoryWake {
    async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone, so nothing will ever come.
            std::future::pending::<()>().await;
        }
    }

    async fn busy(&mut self, _busy: bool) {}
}
