//! What a SQLite error asks of the relay.

use crate::own_claims::NoLivingRelay;
use postroom::EnqueueError;
use postroom_core::{StoreError, StoreErrorKind};
use sqlx::Error;
use sqlx::error::DatabaseError;

/// Wraps a driver's error with what was being done.
pub(super) fn store_error(doing: &str, error: Error) -> StoreError {
    let error = match of_store(error) {
        Ok(of_store) => return of_store,
        Err(error) => error,
    };
    let kind = kind(&error);
    let hint = match kind {
        StoreErrorKind::Schema => {
            ": the outbox is missing or older than this program; run `postroom migrate`"
        }
        StoreErrorKind::Unavailable => ": the file cannot be opened, read or written",
        StoreErrorKind::Conflict if has_no_living_relay(&error) => {
            return StoreError::new(kind, format!("{doing}: {NoLivingRelay}"), error);
        }
        StoreErrorKind::Conflict => {
            ": another process holds the file's write lock; wait for it to finish, then run this \
             again"
        }
        StoreErrorKind::Refused => ": SQLite refused it",
    };
    // SQLite's own words are in the driver error's source; bring them to the top.
    let detail =
        error.as_database_error().map_or_else(String::new, |db| format!(" ({})", db.message()));
    StoreError::new(kind, format!("{doing}{hint}{detail}"), error)
}

/// Wraps what enqueueing in the store's own transaction answers.
pub(super) fn enqueue_error(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Database(source) => match source.downcast::<Error>() {
            Ok(error) => store_error("enqueueing", *error),
            Err(other) => StoreError::new(StoreErrorKind::Refused, "enqueueing", other),
        },
        EnqueueError::Invalid(_) | EnqueueError::Vanished | EnqueueError::OldFence => {
            let context = format!("enqueueing: {error}");
            StoreError::new(StoreErrorKind::Refused, context, error)
        }
    }
}

/// A fault of the store's own that came through the driver: what it found of a layout's table.
fn of_store(error: Error) -> Result<StoreError, Error> {
    match error {
        Error::Configuration(cause) => match cause.downcast::<StoreError>() {
            Ok(of_store) => Ok(*of_store),
            Err(cause) => Err(Error::Configuration(cause)),
        },
        other => Err(other),
    }
}

/// Whether a take found no living row of its relay.
fn has_no_living_relay(error: &Error) -> bool {
    matches!(error, Error::Configuration(cause) if cause.is::<NoLivingRelay>())
}

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Configuration(_) if has_no_living_relay(error) => StoreErrorKind::Conflict,
        Error::Database(database) => database_kind(&**database),
        Error::Io(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed => {
            StoreErrorKind::Unavailable
        }
        _ => StoreErrorKind::Refused,
    }
}

fn database_kind(error: &dyn DatabaseError) -> StoreErrorKind {
    // The low byte is SQLite's primary code, the rest says more about it.
    let code = error.code().and_then(|code| code.parse::<i32>().ok()).map_or(0, |code| code & 0xff);
    match code {
        // BUSY, LOCKED, and SCHEMA: the schema changed under a prepared statement.
        5 | 6 | 17 => StoreErrorKind::Conflict,
        // PERM, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, AUTH, NOTADB.
        3 | 7 | 8 | 10 | 11 | 13 | 14 | 15 | 23 | 26 => StoreErrorKind::Unavailable,
        // ERROR, the general one.
        1 if ["no such table", "no such column", "no such index"]
            .iter()
            .any(|words| error.message().contains(words)) =>
        {
            StoreErrorKind::Schema
        }
        _ => StoreErrorKind::Refused,
    }
}
