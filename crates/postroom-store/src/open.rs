//! From a URL to a store.

use crate::layout::Layout;
use crate::memory::MemoryStore;
use crate::mysql::MySqlStore;
use crate::postgres::PgStore;
use crate::sqlite::SqliteStore;
use postroom_core::{Store, StoreError, StoreErrorKind, StoreResult, SystemClock};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Whether SENT messages stay as history; otherwise they leave at completion.
    pub keep_sent: bool,
    /// The integrations whose messages are noted as delivered, and say SENT only after
    /// [`Upkeep::record_sent`](postroom_core::Upkeep::record_sent) (PostgreSQL only).
    pub record_later: Vec<String>,
    /// For how long after its delivery the event of a message is not delivered again, though the
    /// message is pruned or was never kept.
    pub remember_events: Duration,
    /// Whether to listen for new messages, where the database can tell; otherwise only poll.
    pub notify: bool,
    /// The most connections, besides the one that listens. A relay takes on two and records on
    /// two; the others keep claims alive meanwhile.
    pub connections: usize,
    /// Whether a pooler in transaction mode stands in between (PostgreSQL): then no statement is
    /// prepared by name, and only `direct_url` is listened on.
    pub transaction_pooler: bool,
    /// A URL that leads past the pooler, for what needs a session of its own.
    pub direct_url: Option<String>,
    /// How the message table is read and written, unless it is Postroom's own.
    pub layout: Option<Arc<Layout>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            keep_sent: true,
            record_later: Vec::new(),
            remember_events: Duration::ZERO,
            notify: true,
            connections: 6,
            transaction_pooler: false,
            direct_url: None,
            layout: None,
        }
    }
}

/// Opens the outbox at `url`: `postgres://…`, `mysql://…` (or `mariadb://…`),
/// `sqlite://PATH` (or `sqlite:PATH`), `memory:`.
///
/// A server's URL may name several hosts, `postgres://app@a:5432,b:5432/shop`: whichever of them
/// takes writes is used, now and after a failover.
///
/// # Errors
/// When the URL is malformed or names no database Postroom knows, a SQLite file cannot be opened, or
/// the database has no background recording and an integration asks for it. A server is connected to on first use.
pub async fn open(url: &str, options: &OpenOptions) -> StoreResult<Arc<dyn Store>> {
    let location = locate(url)?;
    if !options.record_later.is_empty() && !matches!(location, Location::Postgres) {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            "record_sent = \"background\" is for PostgreSQL: elsewhere a fresh message has a row of \
             its own in the ledger, and a note instead of its status would save nothing; remove the \
             setting",
        ));
    }
    refuse_layout(&location, options.layout.as_deref())?;
    Ok(match location {
        Location::Postgres => Arc::new(PgStore::new(url, options)?),
        Location::MySql => {
            let store = MySqlStore::new(url, options)?;
            store.choose_host().await;
            Arc::new(store)
        }
        Location::Sqlite(path) => Arc::new(SqliteStore::open(&path, options).await?),
        Location::Memory => {
            let store = MemoryStore::new(Arc::new(SystemClock)).keep_sent(options.keep_sent);
            Arc::new(store.remember_events(options.remember_events))
        }
    })
}

/// Memory has no other tables than Postroom's own.
pub(crate) fn refuse_layout(location: &Location, layout: Option<&Layout>) -> StoreResult<()> {
    match (location, layout) {
        (Location::Postgres | Location::MySql | Location::Sqlite(_), _) | (_, None) => Ok(()),
        (Location::Memory, Some(layout)) => Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!(
                "the layout of {} is for a database: in memory there is Postroom's own table alone",
                layout.table
            ),
        )),
    }
}

/// Whether the outbox at `url` can have SENT recorded in the background, as
/// [`OpenOptions::record_later`] asks.
#[must_use]
pub fn has_background_recording(url: &str) -> bool {
    matches!(locate(url), Ok(Location::Postgres))
}

/// What a URL points at.
pub(crate) enum Location {
    Postgres,
    MySql,
    Sqlite(PathBuf),
    Memory,
}

pub(crate) fn locate(url: &str) -> StoreResult<Location> {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "postgres" | "postgresql" => Ok(Location::Postgres),
        "mysql" | "mariadb" => Ok(Location::MySql),
        "sqlite" => {
            let path = url.trim_start_matches("sqlite:").trim_start_matches("//");
            if path.is_empty() {
                return Err(StoreError::plain(
                    StoreErrorKind::Refused,
                    "the database URL names no file: expected sqlite://PATH",
                ));
            }
            Ok(Location::Sqlite(PathBuf::from(path)))
        }
        "memory" => Ok(Location::Memory),
        // Only the scheme is repeated: the rest may hold a password.
        _ => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "the database URL has an unknown scheme: expected postgres://…, mysql://…, sqlite://PATH \
             or memory:",
        )),
    }
}
