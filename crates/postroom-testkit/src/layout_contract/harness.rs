//! What a layout's tests provide, so that the contract can be run on it.

use postroom_core::Store;
use std::pin::Pin;
use std::sync::Arc;

/// A table in its owner's words. `{n}` stands for the number of a row, from 1.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// The table, as a statement names it.
    pub table: &'static str,
    /// The integration that its rows are for.
    pub lane: &'static str,
    /// Inserts row `{n}`, whose body is `{"n": {n}}`, beside whatever its owner keeps there.
    pub insert: &'static str,
    /// Inserts rows `{from}` to `{to}` with one statement.
    pub insert_many: &'static str,
    /// Inserts row `{n}` to be due in an hour; or why there is no such thing.
    pub insert_later: Result<&'static str, &'static str>,
    /// Inserts row `{n}` as one that was delivered; or why there is no such thing.
    pub insert_sent: Result<&'static str, &'static str>,
    /// The condition that finds row `{n}`.
    pub row: &'static str,
    /// How the owner reads a row: an expression that says `open`, `sent`, `dead` or something else.
    pub reads: &'static str,
    /// Whether rows leave with their delivery.
    pub leaves: bool,
    /// The expression that counts failed attempts; `None` where rows do not say.
    pub attempts: Option<&'static str>,
    /// The expression for the last error; `None` where rows do not say.
    pub error: Option<&'static str>,
    /// What its owner sets to have a row delivered again; or why that cannot be.
    pub open: Result<&'static str, &'static str>,
    /// What its owner sets to close a row; or why that cannot be.
    pub close: Result<&'static str, &'static str>,
    /// A change that has nothing to do with delivery.
    pub touch: &'static str,
    /// Whether keys can come again.
    pub key_comes_again: Result<(), &'static str>,
}

/// Ends a transaction that was left open, when it is awaited.
pub type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A table of one's own, made by its owner's statements, and a database around it.
pub trait LayoutHarness: Send + Sync {
    /// The layout's and the database's name, for skips.
    fn name(&self) -> String;

    /// The table in its owner's words.
    fn words(&self) -> Words;

    /// Whether triggers feed the ledger; an error says how it is fed instead.
    fn has_triggers(&self) -> Result<(), &'static str>;

    /// Makes the ledger, as `postroom migrate` does; what was done.
    fn migrate(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Removes the ledger, as `postroom adopt --remove` does.
    fn remove(&self) -> impl Future<Output = ()> + Send;

    /// A store on the table. Each call opens one of its own.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A store that records SENT in the background; or why there is none.
    fn store_in_background(
        &self,
    ) -> impl Future<Output = Result<Arc<dyn Store>, &'static str>> + Send;

    /// A store of a role that has the rights of a relay and no others; or why there are none.
    fn store_of_relay(&self) -> impl Future<Output = Result<Arc<dyn Store>, &'static str>> + Send;

    /// Runs statements as the owner does, and tells what the database said if it refused.
    fn execute(&self, sql: &str) -> impl Future<Output = Result<(), String>> + Send;

    /// Runs statements in a transaction that stays open until the answer is awaited.
    fn execute_uncommitted(&self, sql: &str) -> impl Future<Output = End> + Send;

    /// The first value that a query finds, as text.
    fn value(&self, sql: &str) -> impl Future<Output = Option<String>> + Send;

    /// The columns and indexes of the table, as the catalogue has them.
    fn described(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Enqueues a message in the owner's table through Postroom; the row's key, and whether it is new. Or why the
    /// layout has no such thing.
    fn enqueue(
        &self,
        event: &str,
        stream: &str,
        payload: &str,
    ) -> impl Future<Output = Result<(String, bool), &'static str>> + Send;

    /// Runs statements that no trigger sees: what a restore with triggers turned off does.
    fn execute_unseen(&self, sql: &str) -> impl Future<Output = ()> + Send;

    /// Moves the end of every relay's row into the past, as if all heartbeats had ended.
    fn expire_claims(&self) -> impl Future<Output = ()> + Send;

    /// How many rows the ledger has: parcels, deliveries, claims, and changes to be followed.
    fn left_in_ledger(&self) -> impl Future<Output = u64> + Send;

    /// Empties the table and restarts its numbers.
    fn truncate(&self) -> impl Future<Output = ()> + Send;
}
