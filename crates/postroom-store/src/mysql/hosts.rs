//! Several servers in one URL: which of them takes writes at the moment.
//!
//! The pool knows one server. Where a URL names several, a task with a connection of its
//! own looks at the server in use, and points the pool to another one as soon as that does not
//! answer or is read-only.

use super::connect;
use super::pool::Pool;
use postroom_core::{StoreResult, url_per_host};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions as _, Error, MySqlConnection, Row as _};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often the server in use is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to connect and to say whether it takes writes.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const READ_ONLY: &str = "SELECT CAST(@@GLOBAL.read_only AS CHAR)";
/// A Galera node that is not part of its cluster answers nearly every statement with an error, but
/// not this one. Other servers have no such provider.
const GALERA: &str =
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_provider_name', 'wsrep_ready')";

/// The servers that a URL names, in its order.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    first: MySqlConnectOptions,
    others: Vec<MySqlConnectOptions>,
}

/// No server of a URL can be used; and why, for each.
#[derive(Debug, thiserror::Error)]
#[error("no host of the database URL takes writes: {}", .0.join("; "))]
pub(super) struct NoneWritable(Vec<String>);

/// A server that takes writes, and a connection to it.
struct Found {
    options: MySqlConnectOptions,
    connection: MySqlConnection,
}

impl Hosts {
    /// Reads a URL. The error never repeats it, since it may hold a password.
    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let mut parsed = url_per_host(url).into_iter().map(|one| connect::options(&one));
        let first = parsed.next().unwrap_or_else(|| connect::options(url))?;
        Ok(Self { first, others: parsed.collect::<StoreResult<_>>()? })
    }

    pub(super) fn first(&self) -> &MySqlConnectOptions {
        &self.first
    }

    /// The database that the URL names.
    pub(super) fn database(&self) -> &str {
        self.first.get_database().unwrap_or_default()
    }

    /// The same servers, with another database.
    pub(super) fn in_database(&self, name: &str) -> Self {
        let there = |options: &MySqlConnectOptions| options.clone().database(name);
        Self { first: there(&self.first), others: self.others.iter().map(there).collect() }
    }

    pub(super) fn are_several(&self) -> bool {
        !self.others.is_empty()
    }

    /// The server to connect to for something that is done once: the first that takes writes. A
    /// server without an alternative is not asked.
    ///
    /// # Errors
    /// When there are several and none takes writes.
    pub(super) async fn writable(&self) -> Result<MySqlConnectOptions, Error> {
        if !self.are_several() {
            return Ok(self.first.clone());
        }
        self.find().await.map(|found| found.options)
    }

    /// Looks at one after the other.
    async fn find(&self) -> Result<Found, Error> {
        let mut faults = Vec::new();
        for options in std::iter::once(&self.first).chain(&self.others) {
            let looking = async {
                let mut connection = options.connect().await?;
                Ok((look(&mut connection).await?, connection))
            };
            faults.push(match promptly(looking).await {
                Ok((None, connection)) => {
                    return Ok(Found { options: options.clone(), connection });
                }
                Ok((Some(fault), _)) => format!("{} {fault}", place(options)),
                Err(error) => format!("{}: {error}", place(options)),
            });
        }
        Err(Error::Configuration(NoneWritable(faults).into()))
    }
}

/// Why this server cannot be used, if so.
async fn look(connection: &mut MySqlConnection) -> Result<Option<&'static str>, Error> {
    let galera = sqlx::raw_sql(GALERA).fetch_all(&mut *connection).await?;
    let mut status = [None, None];
    for row in galera {
        let place = usize::from(row.try_get::<String, _>(0)? == "wsrep_ready");
        status[place] = Some(row.try_get::<String, _>(1)?);
    }
    let [provider, ready] = status;
    if provider.is_some_and(|name| !name.is_empty()) && ready.as_deref() != Some("ON") {
        return Ok(Some("is a Galera node outside of its cluster"));
    }
    let read_only: String = sqlx::raw_sql(READ_ONLY).fetch_one(connection).await?.try_get(0)?;
    Ok((!["0", "OFF"].contains(&read_only.as_str())).then_some("is read-only"))
}

async fn promptly<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = || std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
    tokio::time::timeout(ANSWER_WITHIN, work).await.unwrap_or_else(|_| Err(Error::Io(late())))
}

fn place(options: &MySqlConnectOptions) -> String {
    format!("{}:{}", options.get_host(), options.get_port())
}

/// One of several servers must take writes to be connected to. That it does not is an outage: the
/// guide looks for another.
pub(super) async fn expect_writable(
    connection: &mut MySqlConnection,
    options: &MySqlConnectOptions,
) -> Result<(), Error> {
    match look(connection).await? {
        None => Ok(()),
        Some(fault) => {
            let faults = vec![format!("{} {fault}", place(options))];
            Err(Error::Configuration(NoneWritable(faults).into()))
        }
    }
}

/// Keeps a pool on a server that takes writes until it is dropped.
#[derive(Debug)]
pub(super) struct Guide {
    task: JoinHandle<()>,
    has_looked: watch::Receiver<bool>,
}

impl Guide {
    pub(super) fn start(pool: Pool, hosts: Hosts) -> Self {
        let (looked, has_looked) = watch::channel(false);
        Self { task: tokio::spawn(guide(pool, hosts, looked)), has_looked }
    }

    /// Waits for the first look at the servers, whatever it found.
    pub(super) async fn has_looked(&self) {
        // An error means that the task panicked: then the pool stays where it is.
        let _ = self.has_looked.clone().wait_for(|looked| *looked).await;
    }
}

impl Drop for Guide {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn guide(pool: Pool, hosts: Hosts, looked: watch::Sender<bool>) {
    let mut in_use = place(&hosts.first);
    let mut connection: Option<MySqlConnection> = None;
    let mut is_lost = false;
    loop {
        let fault = match &mut connection {
            Some(connection) => promptly(look(connection)).await,
            None => Ok(Some("is not connected yet")),
        };
        if !matches!(fault, Ok(None)) {
            connection = None;
            match hosts.find().await {
                Ok(found) => {
                    let host = place(&found.options);
                    if host != in_use {
                        tracing::warn!(host, before = in_use, "using another database host");
                        pool.lead_to(found.options);
                        in_use = host;
                    }
                    connection = Some(found.connection);
                    is_lost = false;
                }
                Err(error) => {
                    if !is_lost {
                        tracing::warn!(%error, "the database cannot be used; trying again");
                    }
                    is_lost = true;
                }
            }
            looked.send_replace(true);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
