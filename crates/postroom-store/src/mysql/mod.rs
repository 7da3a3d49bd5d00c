//! The outbox on MariaDB and MySQL.
//!
//! Every statement works on both, and the tests run on both. There is no RETURNING on MySQL,
//! so what a statement changed is locked and read first, in the same transaction. Lists of
//! numbers, and tokens, are written into the statements: they come from the database and from
//! this program, never from a producer.

mod admin;
mod attempts;
mod claims;
mod connect;
mod dispatch;
mod error;
mod follow;
mod hosts;
mod inspect;
mod intake;
mod locked;
mod migrate;
mod operate;
#[cfg(test)]
mod plan_tests;
mod pool;
mod reconcile;
mod relays;
mod replay;
mod rescue;
mod row;
mod settle;
mod statements;
mod triggers;
mod upkeep;
mod version;

pub use migrate::{MIGRATIONS, migrate, plan};

/// The statements that make a role for producers and one for relays.
pub(crate) const GRANTS: &str = include_str!("../../migrations/mysql/grants.sql");

use crate::OpenOptions;
use crate::round::Round;
use chrono::NaiveDateTime;
use hosts::{Guide, Hosts};
use pool::{OpenTransaction, Pool};
use postroom_core::StoreResult;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::collections::HashMap;
use tokio::sync::OnceCell;
use uuid::Uuid;
use uuid::fmt::Hyphenated;
use version::Locking;

/// The outbox on MariaDB or MySQL.
#[derive(Debug)]
pub struct MySqlStore {
    pool: Pool,
    /// Where there are several servers.
    guide: Option<Guide>,
    keep_sent: bool,
    locking: OnceCell<Locking>,
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
        let hosts = Hosts::parse(url)?;
        let pool = connect::pool(&hosts, options.connections)?;
        let guide = hosts.are_several().then(|| Guide::start(pool.clone(), hosts));
        Ok(Self {
            pool,
            guide,
            keep_sent: options.keep_sent,
            locking: OnceCell::new(),
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

/// Numbers as SQL writes them in `IN (…)`. None at all match nothing.
fn list(numbers: &[i64]) -> String {
    if numbers.is_empty() {
        return "NULL".to_owned();
    }
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// Runs a statement that was put together here, and counts the rows it met.
async fn execute(connection: &mut MySqlConnection, sql: String) -> Result<u64, Error> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(done.rows_affected())
}

/// The rows of a statement that was put together here.
async fn fetch(connection: &mut MySqlConnection, sql: String) -> Result<Vec<MySqlRow>, Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await
}

/// Deletes rows by number. The key is named, here and in every statement that lists numbers: with
/// statistics that were taken of an empty table the server would read, and lock, all of it. A
/// DELETE takes such a hint only in this form.
async fn delete(
    connection: &mut MySqlConnection,
    table: &'static str,
    seqs: &[i64],
) -> Result<(), Error> {
    for part in seqs.chunks(LIST) {
        let sql = format!(
            "DELETE gone FROM {table} AS gone FORCE INDEX (PRIMARY) WHERE gone.seq IN ({})",
            list(part)
        );
        execute(connection, sql).await?;
    }
    Ok(())
}

/// The numbers that a statement put together here selects.
async fn numbers(connection: &mut MySqlConnection, sql: String) -> Result<Vec<i64>, Error> {
    fetch(connection, sql).await?.iter().map(|row| row.try_get(0)).collect()
}

/// The ids of the messages that have these numbers.
async fn identities(
    connection: &mut MySqlConnection,
    seqs: &[i64],
) -> Result<HashMap<i64, Uuid>, Error> {
    let sql = format!(
        "SELECT seq, id FROM integration_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({})",
        list(seqs)
    );
    let rows = fetch(connection, sql).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<Hyphenated, _>(1)?.into()))).collect()
}

/// The database's clock.
async fn now(connection: &mut MySqlConnection) -> Result<NaiveDateTime, Error> {
    sqlx::query_scalar("SELECT UTC_TIMESTAMP(6)").fetch_one(connection).await
}
