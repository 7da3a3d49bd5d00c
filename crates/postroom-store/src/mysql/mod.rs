//! The outbox on MariaDB and MySQL.
//!
//! Every statement works on both, and the tests run on both. There is no RETURNING on MySQL,
//! so what a statement changed is locked and read first, in the same transaction. The indexes are
//! named: with statistics that were taken while there was little to do, the server would read, and
//! lock, whole tables instead.

mod admin;
mod attempts;
mod backlog;
mod claims;
mod columns;
mod connect;
mod content;
mod deliveries;
mod dispatch;
mod error;
mod follow;
mod hosts;
mod inspect;
mod intake;
mod key;
mod layout;
mod list;
mod literal;
mod locked;
mod migrate;
mod operate;
mod parcel;
mod parcels;
#[cfg(test)]
mod plan_tests;
mod pool;
mod reconcile;
mod relays;
mod remembered;
mod replay;
mod rescue;
mod row;
mod session;
mod settle;
mod triggers;
mod upkeep;
mod version;

pub(crate) use migrate::layout_grants;
pub use migrate::{MIGRATIONS, migrate, plan, propose_layout, remove_ledger};

/// The statements that make a role for producers and one for relays.
pub(crate) const GRANTS: &str = include_str!("../../migrations/mysql/grants.sql");

use crate::OpenOptions;
use crate::round::Round;
use crate::vanished::Untold;
use chrono::NaiveDateTime;
use hosts::{Guide, Hosts};
use layout::Rows;
use parcels::Lanes;
use pool::{OpenTransaction, Pool};
use postroom_core::{MessageId, StoreResult};
use session::Session;
use sqlx::Error;
use sqlx::mysql::MySqlRow;
use std::borrow::Cow;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::OnceCell;
use uuid::Uuid;
use version::Locking;

/// The outbox on MariaDB or MySQL.
#[derive(Debug)]
pub struct MySqlStore {
    pool: Pool,
    /// Where there are several servers.
    guide: Option<Guide>,
    /// The table that somebody else made, where this is its ledger.
    rows: Option<Rows>,
    /// What of it was gone before it was delivered.
    vanished: Untold,
    keep_sent: bool,
    remember_events: Duration,
    locking: OnceCell<Locking>,
    lanes: Lanes,
    /// How many takes there were.
    takes: AtomicUsize,
    /// Over the messages that have attempts, and over the deliveries.
    swept: Round,
    looked_through: Round,
}

impl MySqlStore {
    /// A store on the database at `url`. Connects on first use.
    ///
    /// # Errors
    /// When the URL is malformed or names no database.
    pub fn new(url: &str, options: &OpenOptions) -> StoreResult<Self> {
        let mut hosts = Hosts::parse(url)?;
        let rows = options.layout.clone().map(|layout| Rows::new(layout, hosts.database()));
        if let Some(rows) = &rows {
            hosts = hosts.in_database(&rows.ledger());
        }
        let pool = connect::pool(&hosts, options.connections, rows.is_some())?;
        let guide = hosts.are_several().then(|| Guide::start(pool.clone(), hosts));
        let deletes_sent = options.layout.as_ref().is_some_and(|layout| layout.deletes_sent());
        let is_own = rows.is_none();
        Ok(Self {
            pool,
            guide,
            rows,
            vanished: Untold::default(),
            keep_sent: options.keep_sent && !deletes_sent,
            // A table of somebody else's has a unique key of its own.
            remember_events: if is_own { options.remember_events } else { Duration::ZERO },
            locking: OnceCell::new(),
            lanes: Lanes::default(),
            takes: AtomicUsize::new(0),
            swept: Round::default(),
            looked_through: Round::default(),
        })
    }

    /// Looks for a server that takes writes, where the URL names several. Without one, it goes on
    /// to look while the store is used.
    pub(crate) async fn choose_host(&self) {
        if let Some(guide) = &self.guide {
            // A server that is found later serves the next statement.
            let _ = tokio::time::timeout(connect::CONNECTION_WAIT, guide.has_looked()).await;
        }
    }

    /// The same store, claiming as it does on a server that has no SKIP LOCKED (MariaDB before
    /// 10.6, MySQL before 8.0.1). Such servers are recognised; this is for seeing what they get.
    #[must_use]
    pub fn without_skip_locked(self) -> Self {
        Self { locking: OnceCell::new_with(Some(Locking::Wait)), ..self }
    }

    /// What the ledger names a message by; `None` when no message here has this id.
    fn id_of(&self, id: &MessageId) -> Option<Uuid> {
        match &self.rows {
            Some(_) => Some(layout::ledger_id(id)),
            None => id.as_uuid(),
        }
    }

    /// The column of `outbox_messages AS m` that holds it.
    fn id_column(&self) -> &'static str {
        if self.rows.is_some() { "m.ledger_id" } else { "m.id" }
    }

    /// A statement with values of its own, in the words of this store.
    fn worded<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        if self.rows.is_some() { layout::of_rows(sql) } else { Cow::Borrowed(sql) }
    }

    async fn begin(&self) -> Result<OpenTransaction, Error> {
        self.pool.begin().await
    }

    /// How rows that others hold are met on this server; asked once.
    async fn locking(&self) -> Result<Locking, Error> {
        let ask = async {
            let version: String =
                sqlx::query_scalar("SELECT VERSION()").fetch_one(&self.pool).await?;
            version::locking(&version)
                .map_err(|unsupported| Error::Configuration(unsupported.into()))
        };
        self.locking.get_or_try_init(|| ask).await.copied()
    }
}

/// How many numbers go into one statement. MariaDB turns lists of a thousand into subqueries.
const LIST: usize = 500;

/// Runs a statement that was put together here, and counts the rows it met.
async fn execute(connection: &mut Session, sql: String) -> Result<u64, Error> {
    connection.run(sql).await
}

/// Runs statements that name one row each by its whole key, many in one round trip. A list of keys would not
/// do for what locks or deletes: where a table is small, the server reads all of it instead of looking up
/// each key, and waits for rows that somebody else has locked or not committed yet. An UPDATE of rows that
/// are locked already may name a list: it passes over what it does not mean.
async fn execute_each(
    connection: &mut Session,
    statements: impl IntoIterator<Item = String>,
) -> Result<(), Error> {
    let statements: Vec<String> = statements.into_iter().collect();
    for part in statements.chunks(LIST) {
        execute(connection, part.join("; ")).await?;
    }
    Ok(())
}

/// The rows of such statements.
async fn fetch_each(
    connection: &mut Session,
    statements: impl IntoIterator<Item = String>,
) -> Result<Vec<MySqlRow>, Error> {
    let statements: Vec<String> = statements.into_iter().collect();
    let mut rows = Vec::new();
    for part in statements.chunks(LIST) {
        rows.extend(fetch(connection, part.join("; ")).await?);
    }
    Ok(rows)
}

/// The rows of a statement that was put together here.
async fn fetch(connection: &mut Session, sql: String) -> Result<Vec<MySqlRow>, Error> {
    connection.rows(sql).await
}

/// The database's clock.
async fn now(connection: &mut Session) -> Result<NaiveDateTime, Error> {
    sqlx::query_scalar("SELECT UTC_TIMESTAMP(6)").fetch_one(connection).await
}
