//! What a failure at Redis means for whoever called.

use redis::{ErrorKind, RedisError};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Redis cannot be reached, or cannot serve now (loading, out of memory, failing over).
    /// Nothing is known about what the call has done; calling again later is safe.
    #[error("Redis at {place} cannot be used now: {problem}")]
    Away {
        /// Host and port.
        place: String,
        /// What went wrong.
        problem: String,
        /// The cause, where there is one.
        source: Option<RedisError>,
    },
    /// Redis refuses what was sent, and will again.
    #[error("Redis at {place} refuses this: {problem}")]
    Refused {
        /// Host and port.
        place: String,
        /// What went wrong.
        problem: String,
        /// The cause, where there is one.
        source: Option<RedisError>,
    },
    /// The configuration does not fit the server: credentials, rights, keys. For the operator.
    #[error("Redis at {place} cannot be used as configured: {problem}")]
    Misconfigured {
        /// Host and port, or the queue.
        place: String,
        /// What went wrong, and what to do.
        problem: String,
        /// The cause, where there is one.
        source: Option<RedisError>,
    },
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Class {
    Away,
    Refused,
    Misconfigured(&'static str),
}

impl QueueError {
    /// Whether calling again later may work without anybody doing something.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }

    /// Whether the connection was lost on the way, and not by the server's word.
    pub(crate) fn is_lost(&self) -> bool {
        let Self::Away { source: Some(source), .. } = self else { return false };
        source.code().is_none() && !source.is_timeout()
    }

    pub(crate) fn away(place: &str, problem: impl Into<String>) -> Self {
        Self::Away { place: place.to_owned(), problem: problem.into(), source: None }
    }

    pub(crate) fn misconfigured(place: &str, problem: impl Into<String>) -> Self {
        Self::Misconfigured { place: place.to_owned(), problem: problem.into(), source: None }
    }

    pub(crate) fn of(place: &str, error: RedisError) -> Self {
        let place = place.to_owned();
        let said = match error.code() {
            Some(code) => format!("it answered {code} {}", error.detail().unwrap_or_default()),
            None if error.is_timeout() => "no answer in time".to_owned(),
            None => error.to_string(),
        };
        match classify(&error) {
            Class::Away => Self::Away { place, problem: said, source: Some(error) },
            Class::Refused => Self::Refused { place, problem: said, source: Some(error) },
            Class::Misconfigured(remedy) => Self::Misconfigured {
                place,
                problem: format!("{said}: {remedy}"),
                source: Some(error),
            },
        }
    }
}

fn classify(error: &RedisError) -> Class {
    if let Some(code) = error.code() {
        return answer(code, error.detail().unwrap_or_default());
    }
    if is_tls(error) {
        return Class::Misconfigured("check the server's certificate and `ca_file`");
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            Class::Misconfigured("check the user and password in the URL")
        }
        ErrorKind::InvalidClientConfig => Class::Misconfigured("correct the URL"),
        _ => Class::Away,
    }
}

fn answer(code: &str, words: &str) -> Class {
    // Before version 7, what goes wrong in a script comes as an ERR with the code in its words.
    let is = |name: &str| code == name || (code == "ERR" && words.contains(name));
    // A long command before the login is a fault of the protocol to Redis.
    if is("NOAUTH") || is("WRONGPASS") || is("unauthenticated") {
        return Class::Misconfigured("check the user and password in the URL");
    }
    if is("NOPERM") {
        return Class::Misconfigured(
            "BullMQ needs scripts, streams, lists, sorted sets, hashes and CLIENT SETNAME on the \
             keys of its prefix",
        );
    }
    if is("WRONGTYPE") {
        return Class::Misconfigured(
            "something else is stored under a key of this queue: use another prefix",
        );
    }
    if is("CROSSSLOT") {
        return Class::Misconfigured("on a cluster the prefix needs a hash tag, such as {bull}");
    }
    if code == "ERR" && words.contains("unknown command") {
        return Class::Misconfigured("Redis 5 or newer is needed, with scripts allowed");
    }
    if code == "ERR" && words.contains("DB index") {
        return Class::Misconfigured("correct the number of the database in the URL");
    }
    if code == "ERR" && (words.contains("invalid bulk length") || words.contains("max size")) {
        return Class::Refused;
    }
    // Memory, replicas, loading, failover, moved slots, a busy script, and what we do not know.
    Class::Away
}

/// Whether an error comes from TLS itself.
fn is_tls(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // redis-rs shares its causes, and an error in an Arc shows only the source of itself.
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let error = shared.map_or(error, |shared| &**shared);
        // An I/O error likewise shows the source of what it wraps, and not that itself.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<rustls::Error>() || wrapped.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_class() {
        let is_misconfigured = |class| matches!(class, Class::Misconfigured(_));
        for (code, words) in [
            ("NOAUTH", "Authentication required."),
            ("WRONGPASS", "invalid username-password pair"),
            ("NOPERM", "this user has no permissions"),
            ("ERR", "Protocol error: unauthenticated multibulk length"),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value"),
            ("ERR", "Error running script: WRONGTYPE Operation against a key"),
            ("CROSSSLOT", "Keys in request don't hash to the same slot"),
            ("ERR", "unknown command 'EVALSHA'"),
            ("ERR", "DB index is out of range"),
        ] {
            assert!(is_misconfigured(answer(code, words)), "{code} {words}");
        }
        assert_eq!(answer("ERR", "Protocol error: invalid bulk length"), Class::Refused);
        for (code, words) in [
            ("ERR", "max number of clients reached"),
            ("ERR", "something new"),
            ("BUSY", "Redis is busy running a script"),
            ("CLUSTERDOWN", "Hash slot not served"),
            ("LOADING", "Redis is loading the dataset in memory"),
            ("MASTERDOWN", "Link with MASTER is down"),
            ("MISCONF", "Redis is configured to save RDB snapshots"),
            ("NOREPLICAS", "Not enough good replicas to write"),
            ("OOM", "command not allowed when used memory > 'maxmemory'"),
            ("READONLY", "You can't write against a read only replica"),
            ("TRYAGAIN", "Multiple keys request during rehashing"),
        ] {
            assert_eq!(answer(code, words), Class::Away, "{code} {words}");
        }
    }

    #[test]
    fn every_way_not_to_connect_has_its_class() {
        let error = |kind| QueueError::of("host:6379", RedisError::from((kind, "words")));
        assert!(error(ErrorKind::Io).is_away());
        assert!(error(ErrorKind::ClusterConnectionNotFound).is_away());
        assert!(!error(ErrorKind::AuthenticationFailed).is_away());
        assert!(!error(ErrorKind::InvalidClientConfig).is_away());
    }
}
