//! The databases that the checker knows, and what it asks of them.

use super::{postgres, sqlite};
use async_trait::async_trait;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Where the outbox is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Database {
    /// A private, durable PostgreSQL that crashes and restarts.
    Postgres,
    /// A file.
    Sqlite,
}

impl Database {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Postgres, Self::Sqlite];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }

    /// The database with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|database| database.name() == name)
    }

    /// Starts it and makes an empty outbox.
    pub(super) async fn start(self, postroom: &Path) -> anyhow::Result<Arc<dyn Outbox>> {
        Ok(match self {
            Self::Postgres => Arc::new(postgres::start(postroom).await?),
            Self::Sqlite => Arc::new(sqlite::start(postroom)?),
        })
    }
}

/// An outbox on one kind of database.
#[async_trait]
pub(super) trait Outbox: Send + Sync {
    /// For relays.
    fn url(&self) -> String;

    /// A connection for one producer.
    async fn producer(&self) -> anyhow::Result<Box<dyn Producer>>;

    /// Crashes and restarts; `None` where there is no server.
    fn server(&self) -> Option<&dyn Server>;

    /// How many messages are still to be delivered.
    async fn left(&self) -> anyhow::Result<i64>;

    /// The event ids of all messages that it holds.
    async fn present(&self) -> anyhow::Result<HashSet<String>>;
}

/// A database in a process of its own.
#[async_trait]
pub(super) trait Server: Send + Sync {
    /// Ends at once and flushes nothing.
    async fn crash(&self) -> anyhow::Result<()>;

    /// Starts again on what it had written.
    async fn restart(&self) -> anyhow::Result<()>;

    /// Ends every other connection.
    async fn kill_connections(&self) -> anyhow::Result<()>;
}

/// How a transaction ended for its producer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// Acknowledged.
    Committed,
    /// Rolled back, or failed before the commit was asked for.
    Nothing,
    /// The commit was asked for and not acknowledged.
    Unknown,
}

/// Writes messages in transactions.
#[async_trait]
pub(super) trait Producer: Send {
    /// Writes these messages in one transaction, and commits it or rolls it back.
    async fn transact(&mut self, event_ids: &[String], commit: bool) -> Ended;
}

/// Where every message goes.
pub(super) const INTEGRATION: &str = "webhook:chaos";
