//! Connecting.

use super::error::store_error;
use super::hosts::{self, Hosts};
use super::pool::Pool;
use super::session::Session;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, MySqlConnection};
use std::time::Duration;

/// How long a caller waits for a connection before the database counts as away, and how long one
/// may take to be made: TCP, TLS and the server's greeting.
pub(super) const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// READ COMMITTED, since in the default isolation a claim locks the gaps between the rows it
/// takes, and half of the producers' inserts end in a deadlock. Five seconds instead of fifty
/// for a row's lock: what waits that long is better tried again. Two seconds instead of a day for a
/// table's: a settlement may wait so twice within a call's deadline. The variable tells the trigger that notes changes by hand that these are none
/// (`0001_outbox.sql`).
///
/// A transaction whose client fell silent is rolled back by the server, so that the rows it has
/// locked are free again. MariaDB has a limit for that; on MySQL it is the limit for any session
/// that says nothing, and the pool makes another one when it needs it.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 5, SESSION lock_wait_timeout = 2 \
     /*M!100300 , SESSION idle_transaction_timeout = 10 */ \
     /*!80000 , SESSION wait_timeout = 60 */; \
     SET @postroom_relay = 1";

/// Reads a URL with one host. The error never repeats it, since it may hold a password.
pub(super) fn options(url: &str) -> StoreResult<MySqlConnectOptions> {
    // Two TLS providers in one program leave rustls without a default, which sqlx asks for. Whoever
    // comes first sets it, and that is an answer too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let expected = "expected mysql://USER:PASSWORD@HOST:PORT/DATABASE";
    let options: MySqlConnectOptions = url.parse().map_err(|error: Error| {
        let context = format!("the database URL is malformed: {expected}");
        StoreError::new(StoreErrorKind::Refused, context, error)
    })?;
    if options.get_database().is_none() {
        let context = format!("the database URL names no database: {expected}");
        return Err(StoreError::plain(StoreErrorKind::Refused, context));
    }
    Ok(options.timezone(Some("+00:00".to_owned())).disable_statement_logging())
}

/// Connects. The caller limits how long that may take: the driver does not.
pub(super) async fn connect(options: &MySqlConnectOptions) -> Result<MySqlConnection, Error> {
    let mut connection = MySqlConnection::connect_with(options).await?;
    connection.execute(SESSION).await?;
    Ok(connection)
}

/// The same to one of several servers: only to one that takes writes.
pub(super) async fn connect_writable(
    options: &MySqlConnectOptions,
) -> Result<MySqlConnection, Error> {
    let mut connection = MySqlConnection::connect_with(options).await?;
    hosts::expect_writable(&mut connection, options).await?;
    connection.execute(SESSION).await?;
    Ok(connection)
}

/// A connection outside of any pool, for migrations.
///
/// # Errors
/// When the URL is malformed, or the server cannot be reached or does not answer in time.
pub(super) async fn session(url: &str, doing: &str) -> StoreResult<Session> {
    let options = Hosts::parse(url)?.writable().await.map_err(|error| store_error(doing, error))?;
    let connected = tokio::time::timeout(CONNECTION_WAIT, connect(&options)).await;
    let connected = connected.unwrap_or(Err(Error::PoolTimedOut));
    let connection = connected.map_err(|error| store_error(doing, error))?;
    Session::open(connection, false).await.map_err(|error| store_error(doing, error))
}

/// A pool that connects on first use.
///
/// # Errors
/// When it cannot be set up.
pub(super) fn pool(hosts: &Hosts, connections: usize, is_of_rows: bool) -> StoreResult<Pool> {
    Pool::new(hosts, connections, is_of_rows).map_err(|error| {
        StoreError::new(StoreErrorKind::Refused, "setting up the connection pool", error)
    })
}
