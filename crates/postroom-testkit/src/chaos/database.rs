//! The databases that the checker knows, and what it asks of them.

use super::{galera, mariadb, postgres, sqlite};
use async_trait::async_trait;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the outbox is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Database {
    /// A private, durable PostgreSQL that crashes and restarts, or is replaced by its standby.
    Postgres,
    /// A private, durable MariaDB that crashes and restarts.
    MariaDb,
    /// Three MariaDB servers under Galera, one of which is killed at a time.
    Galera,
    /// A file.
    Sqlite,
}

impl Database {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Postgres, Self::MariaDb, Self::Galera, Self::Sqlite];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::Galera => "galera",
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
            Self::MariaDb => Arc::new(mariadb::start(postroom).await?),
            Self::Galera => Arc::new(galera::start(postroom).await?),
            Self::Sqlite => Arc::new(sqlite::start(postroom)?),
        })
    }
}

/// What can happen to a database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DatabaseFault {
    /// It ends at once, flushes nothing, and starts again on what it had written.
    Crash,
    /// Every connection is ended.
    KillConnections,
    /// Nobody answers on the connections that exist; new ones work.
    HalfOpen,
    /// Somebody's open transaction holds messages.
    LockRows,
    /// Somebody's open transaction holds the whole database.
    LockDatabase,
    /// The primary ends for good, and its synchronous standby takes its place.
    PromoteStandby,
    /// One of several nodes ends, and comes back later.
    KillNode,
}

impl DatabaseFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crash => "database crashed",
            Self::KillConnections => "connections killed",
            Self::HalfOpen => "connections half open",
            Self::LockRows => "rows locked",
            Self::LockDatabase => "database locked",
            Self::PromoteStandby => "standby promoted",
            Self::KillNode => "node killed",
        }
    }
}

/// How many messages somebody's open transaction holds.
pub(super) const ROWS_LOCKED: usize = 200;

/// An outbox on one kind of database.
#[async_trait]
pub(super) trait Outbox: Send + Sync {
    /// For the relay of this number.
    fn url(&self, relay: usize) -> String;

    /// A connection for the producer of this number.
    async fn producer(&self, number: usize) -> anyhow::Result<Box<dyn Producer>>;

    /// What can happen to it.
    fn faults(&self) -> &'static [DatabaseFault];

    /// Makes ready what a fault needs, before the messages are let through that it strikes.
    async fn prepare(&self, _fault: DatabaseFault) -> anyhow::Result<()> {
        Ok(())
    }

    /// Strikes, and returns when the fault is over. It lasts for `time`, where that is to choose.
    async fn strike(&self, fault: DatabaseFault, time: Duration) -> anyhow::Result<()>;

    /// How many messages are still to be delivered.
    async fn left(&self) -> anyhow::Result<i64>;

    /// The event ids of all messages that it holds.
    async fn present(&self) -> anyhow::Result<HashSet<String>>;
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
