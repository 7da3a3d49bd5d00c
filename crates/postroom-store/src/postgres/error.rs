//! What a PostgreSQL error asks of the relay.

use super::hosts::is_read_only;
use crate::own_claims::NoLivingRelay;
use postroom_core::{StoreError, StoreErrorKind};
use rustls::CertificateError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Wraps a driver's error with what was being done.
pub(super) fn store_error(doing: &str, error: Error) -> StoreError {
    let kind = kind(&error);
    let hint = match kind {
        StoreErrorKind::Schema => {
            "the outbox is missing or older than this program; run `postroom migrate`"
        }
        StoreErrorKind::Unavailable => "PostgreSQL cannot be reached or went away",
        StoreErrorKind::Conflict if is_lock_timeout(&error) => {
            "another session holds a lock that this needs, and did not release it in time; \
             pg_stat_activity shows who is at work"
        }
        StoreErrorKind::Conflict if has_no_living_relay(&error) => {
            return StoreError::new(kind, format!("{doing}: {NoLivingRelay}"), error);
        }
        StoreErrorKind::Conflict => "lost to a concurrent transaction",
        StoreErrorKind::Refused if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            crate::MISSING_RIGHT
        }
        StoreErrorKind::Refused => "PostgreSQL refused it",
    };
    // The server's own words are in the driver error's source; bring them to the top.
    let detail = error.as_db_error().map_or_else(String::new, |db| format!(" ({})", db.message()));
    StoreError::new(kind, format!("{doing}: {hint}{detail}"), error)
}

/// Whether something failed because it waited for a lock for as long as it may.
pub(super) fn met_a_lock(error: &StoreError) -> bool {
    let source = error.source.as_deref().and_then(|source| source.downcast_ref::<Error>());
    source.is_some_and(is_lock_timeout)
}

/// Whether a statement waited for a lock for as long as it may.
pub(super) fn is_lock_timeout(error: &Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether a take found no living row of its relay: then there was no id for the claim to name.
fn has_no_living_relay(error: &Error) -> bool {
    error.code() == Some(&SqlState::NOT_NULL_VIOLATION)
        && error
            .as_db_error()
            .is_some_and(|db| (db.table(), db.column()) == (Some("claim"), Some("relay")))
}

/// Wraps a pool's error.
pub(super) fn pool_error(error: deadpool_postgres::PoolError) -> StoreError {
    match error {
        deadpool_postgres::PoolError::Backend(error) => connect_error(error),
        other => StoreError::new(
            StoreErrorKind::Unavailable,
            "waiting for a connection: PostgreSQL does not answer in time",
            other,
        ),
    }
}

/// Wraps what went wrong while connecting: a certificate that is refused stays refused, however
/// often it is tried.
pub(super) fn connect_error(error: Error) -> StoreError {
    if is_read_only(&error) {
        return StoreError::new(
            StoreErrorKind::Unavailable,
            "connecting: no host of the database URL takes writes: those that answer are standbys \
             or read-only; name the primary too, or promote one",
            error,
        );
    }
    let Some(fault) = tls_fault(&error) else { return store_error("connecting", error) };
    let problem = match fault {
        rustls::Error::InvalidCertificate(certificate) => refusal(certificate),
        other => format!("TLS failed: {other}"),
    };
    StoreError::new(StoreErrorKind::Refused, format!("connecting to PostgreSQL: {problem}"), error)
}

fn refusal(certificate: &CertificateError) -> String {
    match certificate {
        // The second: an authority of the same name, with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate comes from an authority that is not \
             trusted: name the file of the right one with sslrootcert= in the database URL"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "its certificate is made out to another host ({certificate}): connect by the name \
                 it is made out to, or check the authority alone with sslmode=verify-ca"
            )
        }
        other => format!("its certificate is refused: {other}"),
    }
}

/// The fault of TLS at the bottom of a driver's error.
fn tls_fault(error: &Error) -> Option<&rustls::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<rustls::Error>() {
            return Some(fault);
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(fault) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Some(fault);
        }
        cause = error.source();
    }
    None
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
        _ if has_no_living_relay(error) => StoreErrorKind::Conflict,
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
