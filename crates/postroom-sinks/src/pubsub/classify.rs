//! What a failure at Pub/Sub means for a message.

use crate::cause::{root, short};
use crate::tls;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::error::PublishError;
use postroom_core::Outcome;
use std::path::Path;

/// How publishing one message failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// The service answered with a status.
    Status { code: Code, said: String },
    /// No answer in time.
    TimedOut,
    /// No answer: it cannot be reached, or the connection ended.
    Unanswered(String),
    /// TLS cannot be had.
    Untrusted(String),
    /// There is no token. That concerns no message, however soon it passes.
    NoCredentials(String),
    /// A message before it, of the same ordering key, was not taken.
    Behind,
    /// The client's own word.
    Client(String),
}

impl Failure {
    pub(super) fn of(error: &PublishError) -> Self {
        match error {
            PublishError::Rpc(error) => Self::of_call(error),
            PublishError::OrderingKeyPaused => Self::Behind,
            other => Self::Client(short(&other.to_string())),
        }
    }

    pub(super) fn of_call(error: &Error) -> Self {
        if let Some(status) = error.status() {
            return Self::Status { code: status.code, said: short(&status.message) };
        }
        if error.is_authentication() {
            return Self::NoCredentials(root(error));
        }
        if error.is_timeout() {
            return Self::TimedOut;
        }
        if tls::is_behind(error) {
            return Self::Untrusted(root(error));
        }
        if error.is_connect() || error.is_io() || error.is_transport() {
            return Self::Unanswered(root(error));
        }
        Self::Client(root(error))
    }

    /// Whether it is only that one may not ask.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Status { code: Code::PermissionDenied, .. })
    }
}

pub(super) fn classify(topic: &str, failure: &Failure) -> Outcome {
    match failure {
        Failure::Status { code, said } => status(topic, *code, said),
        Failure::TimedOut => Outcome::retry(format!("no answer about the topic `{topic}` in time")),
        Failure::Unanswered(error) => {
            Outcome::retry(format!("no answer about the topic `{topic}`: {error}"))
        }
        Failure::Untrusted(error) => Outcome::refuse(format!(
            "no TLS on the way to the topic `{topic}`: {error}: check the integration's `endpoint` \
             and the system's root certificates"
        )),
        Failure::NoCredentials(said) => Outcome::refuse(format!(
            "no credentials for the topic `{topic}` ({said}): check the integration's \
             `credentials_file`, or the relay's service account"
        )),
        Failure::Behind => Outcome::retry(format!(
            "not published to `{topic}`, because a message before it with the same ordering key \
             was not taken"
        )),
        Failure::Client(error) => {
            Outcome::retry(format!("cannot publish to the topic `{topic}`: {error}"))
        }
    }
}

/// The statuses with which the service answers a publisher. What it says besides is passed on
/// where it is about the destination, since about a message it could quote from that.
fn status(topic: &str, code: Code, said: &str) -> Outcome {
    let answered = format!("the topic `{topic}` answered {code}");
    let words = if said.is_empty() { answered.clone() } else { format!("{answered} ({said})") };
    match code {
        Code::NotFound => Outcome::refuse(format!(
            "{words}: create the topic, or correct the integration's `project` and `topic`"
        )),
        Code::PermissionDenied => Outcome::refuse(format!(
            "{words}: grant roles/pubsub.publisher on the topic to the relay's service account"
        )),
        Code::Unauthenticated => Outcome::refuse(format!(
            "{words}: check the integration's `credentials_file`, or the relay's service account"
        )),
        Code::FailedPrecondition => Outcome::refuse(format!(
            "{words}: see to the topic's settings, such as the key it is encrypted with"
        )),
        Code::Unimplemented => {
            Outcome::refuse(format!("{words}: correct the integration's `endpoint`"))
        }
        // The one argument that is not the message's.
        Code::InvalidArgument if said.contains("resource name") => {
            Outcome::refuse(format!("{answered}: correct the integration's `project` and `topic`"))
        }
        Code::InvalidArgument | Code::OutOfRange => Outcome::reject(format!(
            "{answered}: the message is too large, or does not fit the topic's schema; correct \
             the row, or send a reference instead"
        )),
        Code::ResourceExhausted => {
            Outcome::retry(format!("{words}: if this lasts, raise the project's quota"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Outcome::retry(words),
        // The list of codes may grow.
        _ => Outcome::retry(words),
    }
}

/// The file that the configuration names cannot be used.
pub(super) fn unusable_file(file: &Path, problem: &str) -> Outcome {
    Outcome::refuse(format!(
        "cannot use {}: {problem}: correct the integration's `credentials_file`",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};
    use google_cloud_gax::error::rpc::Status;
    use std::sync::Arc;

    #[test]
    fn every_status_has_its_class_and_what_is_final_has_a_remedy() {
        for (code, expected) in [
            (Code::Ok, Retry),
            (Code::Cancelled, Retry),
            (Code::Unknown, Retry),
            (Code::InvalidArgument, Reject),
            (Code::DeadlineExceeded, Retry),
            (Code::NotFound, Refuse),
            (Code::AlreadyExists, Retry),
            (Code::PermissionDenied, Refuse),
            (Code::Unauthenticated, Refuse),
            (Code::ResourceExhausted, Retry),
            (Code::FailedPrecondition, Refuse),
            (Code::Aborted, Retry),
            (Code::OutOfRange, Reject),
            (Code::Unimplemented, Refuse),
            (Code::Internal, Retry),
            (Code::Unavailable, Retry),
            (Code::DataLoss, Retry),
        ] {
            let error = Error::service(Status::default().set_code(code).set_message("words"));
            let failure = Failure::of(&PublishError::Rpc(Arc::new(error)));
            assert_eq!(Class::of(&classify("orders", &failure)), expected, "{code}");
        }
        let said = "Invalid resource name given (name=projects/x/topics/y).".to_owned();
        let failure = Failure::Status { code: Code::InvalidArgument, said };
        assert_eq!(Class::of(&classify("orders", &failure)), Refuse);
    }

    #[test]
    fn every_failure_has_its_class() {
        for (failure, expected) in [
            (Failure::TimedOut, Retry),
            (Failure::Unanswered("reset".to_owned()), Retry),
            (Failure::Untrusted("unknown issuer".to_owned()), Refuse),
            (Failure::NoCredentials("none".to_owned()), Refuse),
            (Failure::Behind, Retry),
            (Failure::Client("closed".to_owned()), Retry),
            (Failure::of(&PublishError::OrderingKeyPaused), Retry),
            (Failure::of(&PublishError::Shutdown), Retry),
            (Failure::of_call(&Error::timeout("late")), Retry),
            (Failure::of_call(&Error::connect("refused")), Retry),
            (Failure::of_call(&Error::io("reset")), Retry),
            (Failure::of_call(&Error::connect(rustls::Error::General("who".to_owned()))), Refuse),
        ] {
            assert_eq!(Class::of(&classify("orders", &failure)), expected, "{failure:?}");
        }
    }

    #[test]
    fn what_is_said_about_a_message_is_not_passed_on() {
        let said = "field hunter2 is wrong".to_owned();
        let failure = Failure::Status { code: Code::InvalidArgument, said };
        let Outcome::Reject { error } = classify("orders", &failure) else { panic!() };
        assert!(!error.contains("hunter2"), "{error}");
    }
}
