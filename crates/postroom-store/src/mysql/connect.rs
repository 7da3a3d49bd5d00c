//! Connecting.

use super::error::store_error;
use super::hosts::{self, Moved};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{ConnectOptions as _, Error, Executor as _};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long a caller waits for a connection before the database counts as away.
pub(super) const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// How long the network may swallow packets before the database counts as away. Nothing that a
/// relay does while it works takes as long.
const NETWORK_SILENCE: Duration = Duration::from_secs(30);

/// READ COMMITTED, since in the default isolation a claim locks the gaps between the rows it
/// takes, and half of the producers' inserts end in a deadlock. Five seconds instead of fifty
/// for a lock: what waits that long is better tried again.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET SESSION innodb_lock_wait_timeout = 5";

/// Reads a URL with one host. The error never repeats it, since it may hold a password.
pub(super) fn options(url: &str) -> StoreResult<MySqlConnectOptions> {
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

/// A pool that connects on first use.
pub(super) fn pool(options: MySqlConnectOptions, connections: usize) -> MySqlPool {
    settings(connections)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
        })
        .connect_lazy_with(options)
}

/// The same for one of several servers: it connects only to one that takes writes, and gives up
/// connections to a server that was left.
pub(super) fn pool_of_several(
    options: MySqlConnectOptions,
    connections: usize,
    moved: Arc<Moved>,
) -> MySqlPool {
    settings(connections)
        .after_connect(|connection, _| {
            Box::pin(async move {
                hosts::expect_writable(connection).await?;
                connection.execute(SESSION).await.map(|_| ())
            })
        })
        .before_acquire(move |_, its| {
            let is_current = !moved.is_after(its.age);
            Box::pin(async move { Ok(is_current) })
        })
        .connect_lazy_with(options)
}

fn settings(connections: usize) -> MySqlPoolOptions {
    MySqlPoolOptions::new()
        .max_connections(u32::try_from(connections.max(1)).unwrap_or(u32::MAX))
        .acquire_timeout(CONNECTION_WAIT)
}

/// Waits for what a relay does while it works, but not for ever: the driver has no limit of its
/// own for a network that swallows packets.
pub(super) async fn promptly<T>(
    doing: &str,
    work: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    match tokio::time::timeout(NETWORK_SILENCE, work).await {
        Ok(answer) => answer,
        Err(_) => Err(store_error(doing, Error::PoolTimedOut)),
    }
}
