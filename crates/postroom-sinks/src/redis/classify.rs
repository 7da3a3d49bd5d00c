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
    /// Whether the connection is not to be used again: the server ends it after this, or is a
    /// replica. One that became so keeps its clients, while the name of the primary may already
    /// lead elsewhere.
    pub(super) fn ends_connection(&self) -> bool {
        let Self::Answer { code, words } = self else { return false };
        words.contains("Protocol error") || is(code, words, "READONLY")
    }

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

/// `place` is the server's host and port. `is_fixed`: every message has the same key.
pub(super) fn classify(place: &str, is_fixed: bool, failure: &Failure) -> Outcome {
    match failure {
        Failure::Answer { code, words } => answer(place, is_fixed, code, words),
        Failure::TimedOut => Outcome::retry(format!("no answer from {place} in time")),
        Failure::Client(error) => Outcome::retry(format!("no answer from {place}: {error}")),
    }
}

fn answer(place: &str, is_fixed: bool, code: &str, words: &str) -> Outcome {
    let said = format!("{place} answered {code} {words}");
    let is = |name: &str| is(code, words, name);
    // What is wrong with a key is wrong for all messages only when they share it.
    let of_key = |error| if is_fixed { Outcome::refuse(error) } else { Outcome::retry(error) };
    if is("NOPERM") && words.contains(" access ") {
        return of_key(format!(
            "{said}: let this user write to the key and its mark, or correct the integration's \
             `key`"
        ));
    }
    // A long command before the login is a fault of the protocol to Redis.
    if is("NOAUTH") || is("WRONGPASS") || is("NOPERM") || is("unauthenticated") {
        return Outcome::refuse(format!(
            "{said}: check the user and password in the integration's `url`, and what it may do"
        ));
    }
    if is("WRONGTYPE") {
        return of_key(format!(
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

/// Before version 7, what goes wrong in a script comes as an ERR with the code in its words.
fn is(code: &str, words: &str, name: &str) -> bool {
    code == name || (code == "ERR" && words.contains(name))
}

/// A value that is over the server's limit.
pub(super) fn too_large(place: &str, length: u64, limit: u64) -> Outcome {
    Outcome::reject(format!(
        "{place} takes values of up to {limit} bytes, and one of this message has {length}: send a \
         reference instead, or raise `proto-max-bulk-len` there and redrive it"
    ))
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
            // Before any key.
            failure => classify(place, true, &failure),
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
            let outcome = classify("host:6379", true, &failure);
            assert_eq!(Class::of(&outcome), expected, "{code} {words}");
        }
        for failure in [Failure::TimedOut, Failure::Client("reset".to_owned())] {
            assert_eq!(Class::of(&classify("host:6379", true, &failure)), Retry);
        }
    }

    #[test]
    fn what_concerns_the_key_of_one_message_does_not_concern_the_lane() {
        for (code, words, expected) in [
            ("NOAUTH", "Authentication required.", Refuse),
            ("NOPERM", "User relay has no permissions to run the 'xadd' command", Refuse),
            ("NOPERM", "this user has no permissions to access one of the keys", Retry),
            ("NOPERM", "No permissions to access a key", Retry),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", Retry),
            ("ERR", "Error running script: WRONGTYPE Operation against a key", Retry),
            ("ERR", "unknown command 'XADD'", Refuse),
            ("ERR", "Protocol error: invalid bulk length", Reject),
        ] {
            let failure = Failure::Answer { code: code.to_owned(), words: words.to_owned() };
            let outcome = classify("host:6379", false, &failure);
            assert_eq!(Class::of(&outcome), expected, "{code} {words}");
        }
    }

    #[test]
    fn a_connection_to_a_replica_or_out_of_step_is_left() {
        for (code, words, is_left) in [
            ("READONLY", "You can't write against a read only replica.", true),
            ("ERR", "Error running script: -READONLY You can't write against a replica", true),
            ("ERR", "Protocol error: invalid bulk length", true),
            ("OOM", "command not allowed when used memory > 'maxmemory'", false),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", false),
        ] {
            let failure = Failure::Answer { code: code.to_owned(), words: words.to_owned() };
            assert_eq!(failure.ends_connection(), is_left, "{code} {words}");
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
