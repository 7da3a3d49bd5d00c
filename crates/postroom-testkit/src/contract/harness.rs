//! What a store's tests provide, so that the contract can be run on it.

use super::PlainRow;
use chrono::{DateTime, Utc};
use postroom_core::{MessageId, NewMessage, Store};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Commits a transaction that was left open, when it is awaited.
pub type Commit = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Saves a whole row as it was read before, when it is awaited.
pub type Save = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An empty, migrated outbox of one's own, and what people do to it beside the store: by plain
/// SQL where there is SQL.
pub trait Harness: Send + Sync {
    /// The store's name, for skips.
    fn name(&self) -> &'static str;

    /// Whether SENT is noted beside the messages, so that none has to be free for it.
    fn notes_sent(&self) -> bool {
        false
    }

    /// Whether the database refuses rows that break a rule of the table. An error says why not.
    fn checks_constraints(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// A store on this outbox. Where it can be, each call opens one of its own, as another relay
    /// would.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A store on this outbox that deletes messages at completion.
    fn store_without_history(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A store on this outbox that remembers events for an hour after their delivery, and keeps SENT
    /// messages or not.
    fn store_that_remembers(&self, keep_sent: bool) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Inserts a row; an error is what the database said when it refused.
    fn insert(&self, row: &PlainRow) -> impl Future<Output = Result<MessageId, String>> + Send;

    /// Inserts a row as producers do that skip duplicates: `ON CONFLICT DO NOTHING` and its like. An
    /// error is what the database said when it refused.
    fn insert_or_skip(&self, row: &PlainRow) -> impl Future<Output = Result<(), String>> + Send;

    /// Sets a message's status; an error is what the database said when it refused.
    fn set_status(
        &self,
        id: &MessageId,
        status: &str,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Sets a message's due time.
    fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) -> impl Future<Output = ()> + Send;

    /// Sends a message elsewhere.
    fn set_integration(&self, id: &MessageId, integration: &str)
    -> impl Future<Output = ()> + Send;

    /// Sets a column of a message and no trigger sees it: what replication, or a restore with
    /// triggers turned off, does.
    fn set_unseen(
        &self,
        id: &MessageId,
        column: &str,
        value: &str,
    ) -> impl Future<Output = ()> + Send;

    /// Moves the times at which a message was created, sent and last changed into the past.
    fn make_older(&self, id: &MessageId, by: Duration) -> impl Future<Output = ()> + Send;

    /// Deletes a message.
    fn delete(&self, id: &MessageId) -> impl Future<Output = ()> + Send;

    /// Reads every column of a message, as an ORM does. The answer writes all of them back: by then
    /// the object is stale.
    fn read_whole(&self, id: &MessageId) -> impl Future<Output = Save> + Send;

    /// `TRUNCATE` with numbers restarted: every message goes, and what belongs to them stays.
    fn truncate(&self) -> impl Future<Output = ()> + Send;

    /// Sets the next number back to the first: what a restore of the data alone, or a switchover
    /// to a logical replica, leaves.
    fn restart_numbers(&self) -> impl Future<Output = ()> + Send;

    /// Deletes every delivery: what a restore with triggers turned off leaves.
    fn delete_deliveries(&self) -> impl Future<Output = ()> + Send;

    /// Deletes every claim and leaves what was held: what a restore of some tables leaves.
    fn delete_claims(&self) -> impl Future<Output = ()> + Send;

    /// Moves the end of every relay's row, and so of every claim, into the past, as if all
    /// heartbeats had ended.
    fn expire_claims(&self) -> impl Future<Output = ()> + Send;

    /// How many deliveries there are.
    fn deliveries(&self) -> impl Future<Output = u64> + Send;

    /// How many claims there are.
    fn claims(&self) -> impl Future<Output = u64> + Send;

    /// How many failed attempts are kept, over all messages.
    fn attempts(&self) -> impl Future<Output = u64> + Send;

    /// Enqueues a message in a transaction that stays open until the answer is awaited. An error
    /// says why this store cannot have one beside another writer.
    fn enqueue_uncommitted(
        &self,
        message: &NewMessage,
    ) -> impl Future<Output = Result<Commit, &'static str>> + Send;

    /// Locks a message in a transaction that stays open until the answer is awaited. An error says
    /// why rows of this store cannot be locked one by one, or why its relays wait for them.
    fn lock(&self, id: &MessageId) -> impl Future<Output = Result<Commit, &'static str>> + Send;
}
