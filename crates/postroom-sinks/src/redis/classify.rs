//! What a failure at Redis means for a message.

use crate::tls;
use ::redis::{ErrorKind, RedisError};
use postroom_core::Outcome;

/// How appending one message failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The server answered with an error: its code, and its words.
    Answer { code: String, words: String },
    /// No answer in time.
    TimedOut,
    /// The client's own word: the connection is lost, or the like.
    Client(String),
}

impl Failure {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => {
                let words = error.detail().unwrap_or_default().to_owned();
                Self::Answer { code: code.to_owned(), words }
            }
            None if error.is_timeout() => Self::TimedOut,
            None => Self::Client(error.to_string()),
        }
    }
}

/// `place` is the server's host and port.
pub(super) fn classify(place: &str, failure: &Failure) -> Outcome {
    match failure {
        Failure::Answer { code, words } => answer(place, code, words),
        Failure::TimedOut => Outcome::retry(format!("no answer from {place} in time")),
        Failure::Client(error) => Outcome::retry(format!("no answer from {place}: {error}")),
    }
}

fn answer(place: &str, code: &str, words: &str) -> Outcome {
    let said = format!("{place} answered {code} {words}");
    // Before version 7, what goes wrong in a script comes as an ERR with the code in its words.
    let is = |name: &str| code == name || (code == "ERR" && words.contains(name));
    // A long command before the login is a fault of the protocol to Redis.
    if is("NOAUTH") || is("WRONGPASS") || is("NOPERM") || is("unauthenticated") {
        return Outcome::refuse(format!(
            "{said}: check the user and password in the integration's `url`, and what it may do"
        ));
    }
    if is("WRONGTYPE") {
        return Outcome::refuse(format!(
            "{said}: something else is stored under this key; correct the integration's `key`"
        ));
    }
    if is("CROSSSLOT") {
        return Outcome::refuse(format!("{said}: give the integration's `key` a hash tag"));
    }
    if code == "ERR" && words.contains("unknown command") {
        return Outcome::refuse(format!("{said}: Redis 5 or newer is needed"));
    }
    if code == "ERR" && words.contains("DB index") {
        return Outcome::refuse(format!("{said}: correct the path of the integration's `url`"));
    }
    if code == "ERR" && words.contains("invalid bulk length") {
        return Outcome::reject(format!(
            "{said}: the message is too large; send a reference instead, or raise \
             `proto-max-bulk-len` there and redrive it"
        ));
    }
    // Memory, replicas, loading, failover, moved slots, a busy script, and what we do not know.
    Outcome::retry(said)
}

/// How connecting failed.
pub(super) fn classify_connect(place: &str, error: &RedisError) -> Outcome {
    if tls::is_behind(error) {
        return Outcome::refuse(format!(
            "no TLS with {place}: {error}: check the server's certificate and the integration's \
             `ca_file`"
        ));
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Outcome::refuse(format!(
            "{place} refuses the login: check the user and password in the integration's `url`"
        )),
        ErrorKind::InvalidClientConfig => {
            Outcome::refuse(format!("{place} cannot be used: correct the integration's `url`"))
        }
        _ => match Failure::of(error) {
            Failure::Client(error) => Outcome::retry(format!("cannot connect to {place}: {error}")),
            failure => classify(place, &failure),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};

    #[test]
    fn every_answer_has_its_class_and_what_is_final_has_a_remedy() {
        for (code, words, expected) in [
            ("NOAUTH", "Authentication required.", Refuse),
            ("WRONGPASS", "invalid username-password pair", Refuse),
            ("NOPERM", "this user has no permissions", Refuse),
            ("ERR", "Protocol error: unauthenticated multibulk length", Refuse),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", Refuse),
            ("ERR", "Error running script: WRONGTYPE Operation against a key", Refuse),
            ("CROSSSLOT", "Keys in request don't hash to the same slot", Refuse),
            ("ERR", "unknown command 'XADD'", Refuse),
            ("ERR", "DB index is out of range", Refuse),
            ("ERR", "Protocol error: invalid bulk length", Reject),
            ("ERR", "max number of clients reached", Retry),
            ("ERR", "something new", Retry),
            ("ASK", "3999 127.0.0.1:6381", Retry),
            ("BUSY", "Redis is busy running a script", Retry),
            ("CLUSTERDOWN", "Hash slot not served", Retry),
            ("EXECABORT", "Transaction discarded", Retry),
            ("LOADING", "Redis is loading the dataset in memory", Retry),
            ("MASTERDOWN", "Link with MASTER is down", Retry),
            ("MISCONF", "Redis is configured to save RDB snapshots", Retry),
            ("MOVED", "3999 127.0.0.1:6381", Retry),
            ("NOREPLICAS", "Not enough good replicas to write", Retry),
            ("NOSCRIPT", "No matching script", Retry),
            ("OOM", "command not allowed when used memory > 'maxmemory'", Retry),
            ("READONLY", "You can't write against a read only replica", Retry),
            ("TRYAGAIN", "Multiple keys request during rehashing", Retry),
            ("UNKILLABLE", "", Retry),
        ] {
            let failure = Failure::Answer { code: code.to_owned(), words: words.to_owned() };
            assert_eq!(Class::of(&classify("host:6379", &failure)), expected, "{code} {words}");
        }
        for failure in [Failure::TimedOut, Failure::Client("reset".to_owned())] {
            assert_eq!(Class::of(&classify("host:6379", &failure)), Retry);
        }
    }

    #[test]
    fn every_way_not_to_connect_has_its_class() {
        for (kind, expected) in [
            (ErrorKind::AuthenticationFailed, Refuse),
            (ErrorKind::InvalidClientConfig, Refuse),
            (ErrorKind::Io, Retry),
            (ErrorKind::ClusterConnectionNotFound, Retry),
        ] {
            let error = RedisError::from((kind, "words"));
            assert_eq!(Class::of(&classify_connect("host:6379", &error)), expected, "{kind:?}");
        }
    }
}
