//! What a database provides, so that the ledger on it can be put under stress.

use async_trait::async_trait;
use postroom_core::{Key, MessageId, Store};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// An empty, migrated outbox.
#[async_trait]
pub(super) trait Outbox: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether a relay may be told that it lost a deadlock, which it tries again: where rows that somebody
    /// else has locked cannot be passed over.
    fn relays_may_deadlock(&self) -> bool;

    /// How many messages there may be for each second of a run.
    fn messages_per_second(&self) -> usize {
        2_500
    }

    /// How long somebody may keep a transaction open between two statements.
    fn longest_pause_ms(&self) -> u64 {
        150
    }

    /// A store of one's own, as another relay has it.
    async fn store(&self) -> Arc<dyn Store>;

    /// A connection for plain SQL, with the driver's defaults.
    async fn session(&self) -> Box<dyn Session>;

    /// How many messages are open.
    async fn open(&self) -> i64;

    /// What is left of the ledger but must not be when nothing is open: all but the deliveries of dead
    /// messages.
    async fn left(&self) -> Vec<String>;

    /// Some open messages, and what the ledger knows of them.
    async fn stuck(&self) -> Vec<String>;

    /// Some deliveries that do not say what their messages say.
    async fn unlike(&self) -> Vec<String>;

    /// The status of every message.
    async fn statuses(&self) -> HashMap<MessageId, String>;
}

/// A message as an application inserts it.
pub(super) struct NewRow {
    pub(super) id: Uuid,
    pub(super) lane: &'static str,
    /// From now until it is due, in milliseconds.
    pub(super) delay_ms: u32,
    pub(super) status: &'static str,
}

/// What somebody does to messages by hand.
pub(super) enum Edit {
    /// Open ones are due at some moment within 300 ms.
    DueSoon,
    /// Open ones go elsewhere.
    Elsewhere(&'static str),
    /// Open ones are closed.
    Sent,
    /// SENT ones are opened again.
    Opened,
}

/// A connection for plain SQL.
#[async_trait]
pub(super) trait Session: Send {
    /// Begins or ends a transaction.
    async fn execute(&mut self, sql: &str);

    /// Inserts messages with one statement.
    async fn insert(&mut self, rows: &[NewRow]) -> Vec<Key>;

    /// Changes messages; how many. An error means that somebody else was in the way.
    async fn change(&mut self, edit: &Edit, ids: &[MessageId]) -> Result<u64, String>;
}
