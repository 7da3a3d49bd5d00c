//! What a failure at NATS means for a message.

use crate::tls;
use async_nats::client;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{Error as StreamError, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind};
use postroom_core::Outcome;
use std::error::Error as _;
use std::io;
use std::path::Path;

/// How publishing one message failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// No stream takes messages on this subject.
    NoStream,
    /// The server does not allow this user to publish to this subject.
    Forbidden,
    /// Larger than the server's `max_payload`.
    TooLarge,
    /// The stream answered with an error.
    Stream { code: u64, description: String },
    /// No answer in time.
    TimedOut,
    /// The connection ended first.
    Lost,
    /// The client's own word.
    Client(String),
}

impl Failure {
    pub(super) fn of(error: &PublishError) -> Self {
        if let Some(error) = error.source().and_then(|source| source.downcast_ref::<StreamError>())
        {
            let description = error.to_string();
            return Self::Stream { code: error.error_code().0, description };
        }
        match error.kind() {
            PublishErrorKind::StreamNotFound => Self::NoStream,
            PublishErrorKind::TimedOut => Self::TimedOut,
            PublishErrorKind::BrokenPipe => Self::Lost,
            PublishErrorKind::MaxPayloadExceeded => Self::TooLarge,
            PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::WrongLastSequence
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::Other => Self::Client(error.to_string()),
        }
    }

    pub(super) fn of_core(error: &client::PublishError) -> Self {
        match error.kind() {
            client::PublishErrorKind::MaxPayloadExceeded => Self::TooLarge,
            client::PublishErrorKind::InvalidSubject => Self::Client(error.to_string()),
            client::PublishErrorKind::Send => Self::Lost,
        }
    }
}

/// `place` is the server's host and port. `is_fixed`: every message has the same subject.
pub(super) fn classify(place: &str, is_fixed: bool, failure: &Failure) -> Outcome {
    match failure {
        Failure::NoStream => of_subject(
            is_fixed,
            format!(
                "no stream at {place} takes messages on this subject: create one, or correct the \
                 integration's `subject`"
            ),
        ),
        Failure::Forbidden => of_subject(
            is_fixed,
            format!(
                "{place} does not allow this user to publish to this subject: grant it, or \
                 correct the integration's `subject`"
            ),
        ),
        Failure::TooLarge => Outcome::reject(format!(
            "the message is larger than {place} accepts: send a reference instead, or raise \
             `max_payload` there and redrive it"
        )),
        Failure::Stream { code, description } => {
            stream(place, is_fixed, ErrorCode(*code), description)
        }
        Failure::TimedOut => Outcome::retry(format!("no acknowledgement from {place} in time")),
        Failure::Lost => {
            Outcome::retry(format!("the connection to {place} ended before the acknowledgement"))
        }
        Failure::Client(error) => Outcome::retry(format!("cannot publish to {place}: {error}")),
    }
}

/// What is wrong with a subject is wrong for all messages only when they share it: one kind of
/// message must not keep the others from their streams.
fn of_subject(is_fixed: bool, error: String) -> Outcome {
    if is_fixed { Outcome::refuse(error) } else { Outcome::retry(error) }
}

/// The codes with which a stream answers a publisher.
fn stream(place: &str, is_fixed: bool, code: ErrorCode, description: &str) -> Outcome {
    let said = format!("the stream at {place} answered {} ({description})", code.0);
    match code.0 {
        // Message size, header size.
        10054 | 10097 => Outcome::reject(format!(
            "{said}: send a reference instead, or raise the stream's `max_msg_size` and redrive it"
        )),
        // Not enabled for the account, not enabled at all.
        10039 | 10076 => Outcome::refuse(format!(
            "{said}: enable JetStream there, or set the integration's `mode` to \"core\""
        )),
        // Not found, another one than expected.
        10059 | 10060 => {
            of_subject(is_fixed, format!("{said}: create the stream, or correct the `subject`"))
        }
        10109 => of_subject(is_fixed, format!("{said}: publish to a stream that is not sealed")),
        // The stream is full, or the account, the memory or the disk.
        10002 | 10023 | 10028 | 10047 | 10077 => Outcome::retry(format!(
            "{said}: if this lasts, raise the stream's or the account's limits"
        )),
        // No leader at the moment, too many requests, and what we do not know.
        _ => Outcome::retry(said),
    }
}

/// How connecting failed.
pub(super) fn classify_connect(place: &str, error: &ConnectError) -> Outcome {
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            Outcome::refuse(format!(
                "{place} refuses the login: check user and password in the integration's `url`, \
                 or its `credentials_file`"
            ))
        }
        ConnectErrorKind::Tls => untrusted(place, error),
        ConnectErrorKind::ServerParse => {
            Outcome::refuse(format!("{place} cannot be used: correct the integration's `url`"))
        }
        ConnectErrorKind::Io if tls::is_behind(error) => untrusted(place, error),
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => {
            Outcome::retry(format!("cannot connect to {place}: {error}"))
        }
    }
}

fn untrusted(place: &str, error: &ConnectError) -> Outcome {
    Outcome::refuse(format!(
        "no TLS with {place}: {error}: check the server's certificate and the integration's \
         `ca_file`"
    ))
}

/// A file that the configuration names cannot be used.
pub(super) fn unreadable(file: &Path, error: &io::Error) -> Outcome {
    Outcome::refuse(format!(
        "cannot read {}: {}: correct the integration's `credentials_file`",
        file.display(),
        error.kind()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};

    #[test]
    fn every_failure_has_its_class_and_what_is_final_has_a_remedy() {
        let stream = |code| Failure::Stream { code, description: "words".to_owned() };
        for (failure, expected) in [
            (Failure::NoStream, Refuse),
            (Failure::Forbidden, Refuse),
            (Failure::TooLarge, Reject),
            (Failure::TimedOut, Retry),
            (Failure::Lost, Retry),
            (Failure::Client("closed".to_owned()), Retry),
            (stream(10002), Retry),  // resource limits of the account
            (stream(10008), Retry),  // system temporarily unavailable
            (stream(10009), Retry),  // not the leader
            (stream(10023), Retry),  // insufficient resources
            (stream(10028), Retry),  // memory
            (stream(10039), Refuse), // not enabled for the account
            (stream(10047), Retry),  // storage
            (stream(10054), Reject), // message size
            (stream(10059), Refuse), // stream not found
            (stream(10060), Refuse), // another stream than expected
            (stream(10070), Retry),  // wrong last message id
            (stream(10071), Retry),  // wrong last sequence
            (stream(10076), Refuse), // not enabled
            (stream(10077), Retry),  // could not store: the stream is full
            (stream(10097), Reject), // header size
            (stream(10109), Refuse), // sealed
            (stream(10167), Retry),  // too many requests
            (stream(99999), Retry),  // unknown
        ] {
            let outcome = classify("host:4222", true, &failure);
            assert_eq!(Class::of(&outcome), expected, "{failure:?}");
        }
    }

    #[test]
    fn what_concerns_the_subject_of_one_message_does_not_concern_the_lane() {
        let stream = |code| Failure::Stream { code, description: "words".to_owned() };
        for (failure, expected) in [
            (Failure::NoStream, Retry),
            (Failure::Forbidden, Retry),
            (Failure::TooLarge, Reject),
            (stream(10039), Refuse), // not enabled for the account
            (stream(10054), Reject), // message size
            (stream(10059), Retry),  // stream not found
            (stream(10060), Retry),  // another stream than expected
            (stream(10076), Refuse), // not enabled
            (stream(10109), Retry),  // sealed
        ] {
            let outcome = classify("host:4222", false, &failure);
            assert_eq!(Class::of(&outcome), expected, "{failure:?}");
        }
    }

    #[test]
    fn every_way_not_to_connect_has_its_class() {
        for (kind, expected) in [
            (ConnectErrorKind::ServerParse, Refuse),
            (ConnectErrorKind::Dns, Retry),
            (ConnectErrorKind::Authentication, Refuse),
            (ConnectErrorKind::AuthorizationViolation, Refuse),
            (ConnectErrorKind::TimedOut, Retry),
            (ConnectErrorKind::Tls, Refuse),
            (ConnectErrorKind::Io, Retry),
            (ConnectErrorKind::MaxReconnects, Retry),
        ] {
            let outcome = classify_connect("host:4222", &ConnectError::new(kind));
            assert_eq!(Class::of(&outcome), expected, "{kind:?}");
        }
        let untrusted = io::Error::new(
            io::ErrorKind::InvalidData,
            rustls::Error::General("who are you".to_owned()),
        );
        let error = ConnectError::with_source(ConnectErrorKind::Io, untrusted);
        assert_eq!(Class::of(&classify_connect("host:4222", &error)), Refuse);
    }
}
