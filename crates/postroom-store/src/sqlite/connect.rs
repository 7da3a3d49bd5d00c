//! Opening the file.

use super::error::store_error;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer waits for another process's transaction to end.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// How soon it is tried again where SQLite does not wait by itself.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How long a caller waits for one of this process's connections.
const CONNECTION_WAIT: Duration = Duration::from_secs(15);

/// For a connection that writes.
pub(super) fn writing(path: &Path) -> StoreResult<SqliteConnectOptions> {
    check_folder(path)?;
    Ok(SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // A loss of power can forget the last commits, which repeats a delivery and loses none;
        // what a producer commits is as durable as its own setting.
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_WAIT)
        .disable_statement_logging())
}

/// For a connection that only looks.
pub(super) fn reading(path: &Path) -> StoreResult<SqliteConnectOptions> {
    Ok(writing(path)?.pragma("query_only", "ON"))
}

/// A pool whose first connection is made now, so that a file that cannot be opened is known.
pub(super) async fn pool(
    options: SqliteConnectOptions,
    connections: u32,
    path: &Path,
) -> StoreResult<SqlitePool> {
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECTION_WAIT)
        // A file does not go away like a server: connections are kept, and not tested.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false);
    let end = Instant::now() + BUSY_WAIT;
    loop {
        let opened = pool.clone().connect_with(options.clone()).await;
        let error = match opened {
            Ok(pool) => return Ok(pool),
            Err(error) => store_error(&format!("opening {}", path.display()), error),
        };
        // While another process switches the file to write-ahead logging, or closes it as the
        // last one, SQLite answers that it is busy at once, whatever the time to wait.
        if error.kind != StoreErrorKind::Conflict || Instant::now() >= end {
            return Err(error);
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}

fn check_folder(path: &Path) -> StoreResult<()> {
    if path == Path::new(":memory:") {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            "a SQLite outbox in memory would be another one for every connection: use a file, \
             or the URL memory:",
        ));
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    if folder.is_dir() {
        return Ok(());
    }
    Err(StoreError::plain(
        StoreErrorKind::Unavailable,
        format!(
            "opening {}: the folder {} does not exist; create it, or correct the path",
            path.display(),
            folder.display()
        ),
    ))
}
