//! What a PostgreSQL error asks of the relay.

use postroom_core::{StoreError, StoreErrorKind};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Wraps a driver's error with what was being done.
pub(super) fn store_error(doing: &str, error: Error) -> StoreError {
    let kind = kind(&error);
    let hint = match kind {
        StoreErrorKind::Schema => {
            ": the outbox is missing or older than this program; run `postroom migrate`"
        }
        StoreErrorKind::Unavailable => ": PostgreSQL cannot be reached or went away",
        StoreErrorKind::Conflict => ": lost to a concurrent transaction",
        StoreErrorKind::Refused => ": PostgreSQL refused it",
    };
    // The server's own words are in the driver error's source; bring them to the top.
    let detail = error.as_db_error().map_or_else(String::new, |db| format!(" ({})", db.message()));
    StoreError::new(kind, format!("{doing}{hint}{detail}"), error)
}

/// Wraps a pool's error.
pub(super) fn pool_error(error: deadpool_postgres::PoolError) -> StoreError {
    match error {
        deadpool_postgres::PoolError::Backend(error) => store_error("connecting", error),
        other => StoreError::new(
            StoreErrorKind::Unavailable,
            "waiting for a connection: PostgreSQL does not answer in time",
            other,
        ),
    }
}

fn kind(error: &Error) -> StoreErrorKind {
    let Some(code) = error.code() else {
        // No word from the server: the connection is gone, or a value could not be read.
        let is_network =
            std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
        return if error.is_closed() || is_network {
            StoreErrorKind::Unavailable
        } else {
            StoreErrorKind::Refused
        };
    };
    let class = code.code().get(..2).unwrap_or_default();
    match class {
        // Serialization failure, deadlock; lock not available.
        "40" => StoreErrorKind::Conflict,
        _ if *code == SqlState::LOCK_NOT_AVAILABLE => StoreErrorKind::Conflict,
        // Connection, resources (disk full, too many connections), operator intervention
        // (shutdown, start-up), system errors.
        "08" | "53" | "57" | "58" => StoreErrorKind::Unavailable,
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => StoreErrorKind::Unavailable,
        "3F" => StoreErrorKind::Schema,
        _ if [
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::UNDEFINED_FUNCTION,
        ]
        .contains(code) =>
        {
            StoreErrorKind::Schema
        }
        _ => StoreErrorKind::Refused,
    }
}
