//! The outbox on SQLite.
//!
//! SQLite has one writer at a time, so the store writes on one connection, in transactions that
//! take the write lock at once and hold it for a few statements; it never sends anything while
//! it holds the lock. Everything that only looks uses connections of its own, and an idle relay
//! only looks.

#[macro_use]
mod columns;

mod admin;
mod attempts;
mod claims;
mod connect;
mod content;
mod diagnose;
mod dispatch;
mod error;
mod inspect;
mod intake;
mod json_lists;
mod layout;
mod list;
mod migrate;
mod operate;
mod parcels;
#[cfg(test)]
mod plan_tests;
mod prune;
mod reconcile;
mod relays;
mod rescue;
mod row;
mod session;
mod settle;
mod settle_parcels;
mod statistics;
mod time;
mod upkeep;
mod wake;

pub use migrate::{MIGRATIONS, migrate, plan, propose_layout, remove_ledger};

use crate::OpenOptions;
use crate::layout::Layout;
use crate::round::Round;
use crate::vanished::Untold;
use attempts::Swept;
use error::store_error;
use layout::Names;
use parcels::Lanes;
use postroom_core::StoreResult;
use session::{Lookup, Readers, Session};
use sqlx::Error;
use sqlx::sqlite::SqlitePool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What stays of messages that were delivered.
#[derive(Clone, Copy, Debug)]
struct History {
    /// Whether they are kept; otherwise they leave at completion.
    keep_sent: bool,
    /// For how long after that their events are not delivered again.
    remember_events: Duration,
}

/// The outbox in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: Readers,
    path: PathBuf,
    history: History,
    notify: bool,
    lanes: Lanes,
    /// What was gone before it was delivered, where somebody else made the table.
    vanished: Untold,
    /// Over the messages that have attempts.
    swept: Swept,
    /// Over the dead deliveries.
    looked_through: Round,
}

impl SqliteStore {
    /// Opens the file, and makes an empty one where there is none. The file is switched to
    /// write-ahead logging, so that readers and the writer do not wait for each other.
    ///
    /// # Errors
    /// When the folder does not exist, or the file cannot be opened.
    pub async fn open(path: &Path, options: &OpenOptions) -> StoreResult<Self> {
        let writer = connect::pool(connect::writing(path)?, 1, path).await?;
        forget_statistics(&writer, options.layout.as_deref()).await;
        let readers = u32::try_from(options.connections.max(1)).unwrap_or(u32::MAX);
        let pool = connect::pool(connect::reading(path)?, readers, path).await?;
        let layout = options.layout.clone();
        let is_own = layout.is_none();
        let deletes_sent = layout.as_ref().is_some_and(|layout| layout.deletes_sent());
        Ok(Self {
            writer,
            readers: Readers { pool, lookup: Arc::new(Lookup::of(layout)) },
            path: path.to_owned(),
            history: History {
                keep_sent: options.keep_sent && !deletes_sent,
                // A table of somebody else's has a unique key of its own.
                remember_events: if is_own { options.remember_events } else { Duration::ZERO },
            },
            notify: options.notify,
            lanes: Lanes::default(),
            vanished: Untold::default(),
            swept: Swept::default(),
            looked_through: Round::default(),
        })
    }

    /// Begins a transaction that holds the write lock. A transaction that took it only at its
    /// first write could fail there, since another writer may have come between.
    async fn begin(&self, doing: &str) -> StoreResult<Session> {
        self.transaction().await.map_err(|e| store_error(doing, e))
    }

    async fn transaction(&self) -> Result<Session, Error> {
        let wording = self.readers.wording().await?.clone();
        Ok(Session::of(self.writer.begin_with("BEGIN IMMEDIATE").await?, wording))
    }
}

/// Best effort: without it the store is right, and may be slow.
async fn forget_statistics(writer: &SqlitePool, layout: Option<&Layout>) {
    let names = Names::of(layout);
    let forgotten = async { statistics::forget(&mut *writer.acquire().await?, &names).await };
    if let Err(error) = forgotten.await {
        tracing::warn!(%error, "SQLite's statistics about the outbox could not be thrown away");
    }
}
