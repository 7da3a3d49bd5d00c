//! What an error of MariaDB or MySQL asks of the relay.

use super::hosts::NoneWritable;
use super::version::Unsupported;
use crate::own_claims::NoLivingRelay;
use postroom::EnqueueError;
use postroom_core::{StoreError, StoreErrorKind};
use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;

/// Wraps a driver's error with what was being done.
pub(super) fn store_error(doing: &str, error: Error) -> StoreError {
    let kind = kind(&error);
    // The server's own words are in the driver error's source; bring them to the top.
    let detail = certificate_fault(&error)
        .map(ToString::to_string)
        .or_else(|| cause::<Unsupported>(&error).map(ToString::to_string))
        .or_else(|| cause::<NoneWritable>(&error).map(ToString::to_string))
        .or_else(|| cause::<NoLivingRelay>(&error).map(ToString::to_string))
        .or_else(|| error.as_database_error().map(|database| database.message().to_owned()))
        .map_or_else(String::new, |words| format!(" ({words})"));
    StoreError::new(kind, format!("{doing}: {}{detail}", hint(kind, &error)), error)
}

/// What happened, and what the operator can do.
fn hint(kind: StoreErrorKind, error: &Error) -> &'static str {
    match kind {
        StoreErrorKind::Schema => {
            "the outbox is missing or older than this program; run `postroom migrate`"
        }
        StoreErrorKind::Unavailable if is_missing_file(error) => {
            "a file that the database URL names is not there: ssl-ca, ssl-cert, ssl-key or socket"
        }
        StoreErrorKind::Unavailable if matches!(error, Error::PoolTimedOut) => {
            "waiting for a connection: the database does not answer in time"
        }
        StoreErrorKind::Unavailable => "the database cannot be reached or went away",
        StoreErrorKind::Conflict if number(error) == Some(1205) => {
            "another session holds a lock that this needs, and did not release it in time: a \
             transaction that is still open, or a change of the table. Wait for it to finish, then \
             run this again; `SHOW FULL PROCESSLIST` shows who is at work"
        }
        StoreErrorKind::Conflict if cause::<NoLivingRelay>(error).is_some() => "nothing is taken",
        StoreErrorKind::Conflict => "lost to a concurrent transaction",
        StoreErrorKind::Refused if certificate_fault(error).is_some() => {
            "the server's certificate is not accepted; correct ssl-ca or the host in the \
             database URL, or the server's certificate"
        }
        StoreErrorKind::Refused if matches!(error, Error::Tls(_)) => {
            "TLS cannot be used as the database URL asks; correct ssl-mode or the certificates \
             it names, or the server's settings"
        }
        StoreErrorKind::Refused if cause::<Unsupported>(error).is_some() => {
            "the server cannot be used"
        }
        StoreErrorKind::Refused => match number(error) {
            // Of a database, a table, a column, a routine, a statement of administrators.
            Some(1044 | 1142 | 1143 | 1370 | 1227) => crate::MISSING_RIGHT,
            Some(1153) => {
                "the statement is longer than the server's max_allowed_packet; raise that"
            }
            Some(1419) => {
                "the server writes a binary log and lets only administrators make triggers; \
                 migrate as one, or set log_bin_trust_function_creators = 1 meanwhile"
            }
            Some(1665) => {
                "binlog_format = STATEMENT cannot log READ COMMITTED transactions; use ROW or \
                 MIXED"
            }
            _ => "the database refused it",
        },
    }
}

/// Wraps what enqueueing in the store's own transaction answers.
pub(super) fn enqueue_error(error: EnqueueError) -> StoreError {
    match error {
        EnqueueError::Database(source) => match source.downcast::<Error>() {
            Ok(error) => store_error("enqueueing", *error),
            Err(other) => StoreError::new(StoreErrorKind::Refused, "enqueueing", other),
        },
        EnqueueError::Invalid(_) | EnqueueError::OldFence | EnqueueError::Vanished => {
            let context = format!("enqueueing: {error}");
            StoreError::new(StoreErrorKind::Refused, context, error)
        }
    }
}

/// Why TLS did not trust the server, if that is what went wrong.
fn certificate_fault(error: &Error) -> Option<&rustls::Error> {
    // The driver hands on what the handshake answers, which wraps the reason once more.
    let fault = match error {
        Error::Io(io) => io.get_ref()?.downcast_ref::<rustls::Error>(),
        Error::Tls(cause) => cause.downcast_ref::<rustls::Error>(),
        _ => None,
    };
    fault.filter(|fault| matches!(fault, rustls::Error::InvalidCertificate(_)))
}

/// What this program itself has found out about the servers.
fn cause<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    match error {
        Error::Configuration(cause) => cause.downcast_ref(),
        _ => None,
    }
}

fn is_missing_file(error: &Error) -> bool {
    matches!(error, Error::Io(io) if io.kind() == std::io::ErrorKind::NotFound)
}

/// The server's number for an error, if it was the server that refused.
pub(super) fn number(error: &Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(|error| error.number())
}

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        // The ledger of somebody else's table is a database of its own.
        Error::Database(refused)
            if number(error) == Some(1049) && refused.message().contains("'postroom_") =>
        {
            StoreErrorKind::Schema
        }
        Error::Database(_) => number(error).map_or(StoreErrorKind::Refused, kind_of_number),
        Error::Configuration(_) if cause::<NoneWritable>(error).is_some() => {
            StoreErrorKind::Unavailable
        }
        Error::Configuration(_) if cause::<NoLivingRelay>(error).is_some() => {
            StoreErrorKind::Conflict
        }
        Error::Io(_) if certificate_fault(error).is_some() => StoreErrorKind::Refused,
        Error::Io(_) | Error::PoolTimedOut | Error::PoolClosed | Error::WorkerCrashed => {
            StoreErrorKind::Unavailable
        }
        _ => StoreErrorKind::Refused,
    }
}

fn kind_of_number(number: u16) -> StoreErrorKind {
    match number {
        // Deadlock; lock wait timeout; changed since it was read; lock not available; a key that
        // someone else took between our look and our write.
        1213 | 1205 | 1020 | 3572 | 1062 => StoreErrorKind::Conflict,
        // No such table, column, procedure.
        1146 | 1054 | 1305 => StoreErrorKind::Schema,
        // Disk or table full, errors of the storage engine and its files, memory.
        3 | 1021 | 1114 | 1026 | 1030 | 1037 | 1038 | 1041 => StoreErrorKind::Unavailable,
        // Too many connections, by server or by user; too many errors from this host.
        1040 | 1203 | 1226 | 1129 => StoreErrorKind::Unavailable,
        // Shutdown, killed, interrupted; packets lost on the way.
        1053 | 1077..=1080 | 1317 | 1927 | 1152 | 1154..=1161 | 1184 => StoreErrorKind::Unavailable,
        // Read-only, for now or since another server took over; a Galera node out of its cluster.
        1290 | 1792 | 1836 | 1036 | 1047 => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Galera answers a conflict with another node as a deadlock, at the commit too.
    #[test]
    fn a_deadlock_is_a_conflict_and_no_outage() {
        for lost in [1213, 1205, 1020, 3572] {
            assert_eq!(kind_of_number(lost), StoreErrorKind::Conflict);
        }
    }

    #[test]
    fn a_statement_that_is_too_long_is_no_outage() {
        assert_eq!(kind_of_number(1153), StoreErrorKind::Refused);
        for lost_on_the_way in [1152, 1154, 1158, 1161] {
            assert_eq!(kind_of_number(lost_on_the_way), StoreErrorKind::Unavailable);
        }
    }
}
