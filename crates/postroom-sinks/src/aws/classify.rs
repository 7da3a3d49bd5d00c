//! What a failure at one of Amazon's services means for a message.

use crate::cause::{root, short};
use crate::tls;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use postroom_core::Outcome;
use std::error::Error;

/// What is sent to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Such as "the queue `orders`".
    pub(crate) name: String,
    /// The right that sending takes.
    pub(crate) action: &'static str,
    /// The options that say which one it is.
    pub(crate) options: &'static str,
}

/// How sending failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Failure {
    /// The service answered with an error, for the whole request or for one entry.
    Service { code: String, said: String, status: Option<u16> },
    /// No answer in time.
    TimedOut,
    /// No answer: it cannot be reached, or the connection ended.
    Unanswered(String),
    /// TLS cannot be had.
    Untrusted(String),
    /// There are no credentials. That concerns no message, however soon it passes.
    NoCredentials(String),
    /// An answer that says nothing about this entry.
    Unmentioned,
    /// The SDK's own word.
    Client(String),
}

impl Failure {
    pub(crate) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if let Some(found) = find::<CredentialsError>(error) {
            return Self::NoCredentials(root(found));
        }
        match error {
            SdkError::ServiceError(answer) => Self::Service {
                code: error.code().unwrap_or("an unnamed error").to_owned(),
                said: short(error.message().unwrap_or_default()),
                status: Some(answer.raw().status().as_u16()),
            },
            // An answer that is none of the service's: a proxy's, or one cut off.
            SdkError::ResponseError(answer) => {
                Self::Unanswered(format!("an unreadable answer, {}", answer.raw().status()))
            }
            SdkError::TimeoutError(_) => Self::TimedOut,
            SdkError::DispatchFailure(failure) if failure.is_timeout() => Self::TimedOut,
            SdkError::DispatchFailure(_) if tls::is_behind(error) => Self::Untrusted(root(error)),
            SdkError::DispatchFailure(_) => Self::Unanswered(root(error)),
            _ => Self::Client(root(error)),
        }
    }

    /// What the service says about one entry.
    pub(crate) fn of_entry(code: &str, said: Option<&str>) -> Self {
        let said = short(said.unwrap_or_default());
        Self::Service { code: code.to_owned(), said, status: None }
    }

    /// Whether it is only that one may not ask.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Service { code, .. }
            if matches!(code.as_str(), "AccessDenied" | "AccessDeniedException" | "AuthorizationError"))
    }
}

pub(crate) fn classify(target: &Target, failure: &Failure) -> Outcome {
    let name = &target.name;
    match failure {
        Failure::Service { code, said, status } => service(target, code, said, *status),
        Failure::TimedOut => Outcome::retry(format!("no answer about {name} in time")),
        Failure::Unanswered(error) => Outcome::retry(format!("no answer about {name}: {error}")),
        Failure::Untrusted(error) => Outcome::refuse(format!(
            "no TLS on the way to {name}: {error}: check the integration's `endpoint` and the \
             system's root certificates"
        )),
        Failure::NoCredentials(said) => Outcome::refuse(format!(
            "there are no credentials for {name} ({said}): set `access_key_id` and \
             `secret_access_key`, or give the relay a role"
        )),
        Failure::Unmentioned => {
            Outcome::retry(format!("the answer about {name} leaves this message out"))
        }
        Failure::Client(error) => Outcome::retry(format!("cannot send to {name}: {error}")),
    }
}

/// The codes with which the services answer. What they say besides is passed on where it is about
/// the destination, since about a message it could quote from that.
fn service(target: &Target, code: &str, said: &str, status: Option<u16>) -> Outcome {
    let Target { name, action, options } = target;
    let code = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    let answered = format!("{name} answered {code}");
    let words = if said.is_empty() { answered.clone() } else { format!("{answered} ({said})") };
    match code {
        "RequestThrottled"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "Throttled"
        | "TooManyRequestsException"
        | "RequestLimitExceeded"
        | "SlowDown"
        | "KMS.ThrottlingException"
        | "KMSThrottling" => {
            Outcome::retry(format!("{words}: if this lasts, lower the integration's `concurrency`"))
        }
        "InternalError"
        | "InternalFailure"
        | "InternalServerError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "RequestTimeout" => Outcome::retry(words),
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthorizationError"
        | "UnauthorizedOperation"
        | "NotAuthorized"
        | "OptInRequired" => {
            Outcome::refuse(format!("{words}: grant {action} to the relay's credentials"))
        }
        "InvalidClientTokenId"
        | "UnrecognizedClientException"
        | "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "InvalidSecurity" => Outcome::refuse(format!(
            "{answered}: check the integration's `access_key_id`, `secret_access_key` and \
             `region`, or the relay's role"
        )),
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => {
            Outcome::refuse(format!("{answered}: renew the credentials, `session_token` included"))
        }
        "RequestExpired" | "RequestTimeTooSkewed" => {
            Outcome::refuse(format!("{answered}: set the clock of the relay's machine right"))
        }
        "NonExistentQueue"
        | "QueueDoesNotExist"
        | "QueueDeletedRecently"
        | "NotFound"
        | "NotFoundException"
        | "ResourceNotFoundException"
        | "InvalidAddress" => {
            Outcome::refuse(format!("{words}: create it, or correct the integration's {options}"))
        }
        _ if code.starts_with("KMS") => Outcome::refuse(format!(
            "{words}: let the relay's credentials use the key it is encrypted with \
             (kms:GenerateDataKey, kms:Decrypt), and the key be enabled"
        )),
        "UnsupportedOperation"
        | "InvalidAction"
        | "EndpointDisabled"
        | "PlatformApplicationDisabled" => {
            Outcome::refuse(format!("{words}: see to it there, or send to another"))
        }
        "InvalidParameter" | "InvalidParameterValue" | "ParameterValueInvalid"
            if said.contains("TopicArn") || said.contains("QueueUrl") =>
        {
            Outcome::refuse(format!("{answered}: correct the integration's {options}"))
        }
        "BatchRequestTooLong" | "MessageTooLong" => {
            Outcome::reject(format!("{answered}: send a reference instead"))
        }
        "InvalidMessageContents"
        | "InvalidParameter"
        | "InvalidParameterValue"
        | "ParameterValueInvalid"
        | "InvalidParameterCombination"
        | "InvalidAttributeValue"
        | "MissingParameter"
        | "ValidationError"
        | "ValidationException" => Outcome::reject(format!(
            "{answered}: the message is too large for it, or holds what it does not take; correct \
             the row, or send a reference instead"
        )),
        _ if status == Some(413) => {
            Outcome::reject(format!("{answered} (413): send a reference instead"))
        }
        _ => match status {
            Some(status) => Outcome::retry(format!("{answered} ({status})")),
            None => Outcome::retry(answered),
        },
    }
}

/// The first cause of this type.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};

    fn target() -> Target {
        Target {
            name: "the queue `orders`".to_owned(),
            action: "sqs:SendMessage",
            options: "`queue`",
        }
    }

    fn answered(code: &str, said: &str, status: u16) -> Failure {
        Failure::Service { code: code.to_owned(), said: said.to_owned(), status: Some(status) }
    }

    #[test]
    fn every_code_has_its_class_and_what_is_final_has_a_remedy() {
        for (code, status, expected) in [
            // SQS
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Refuse),
            ("QueueDoesNotExist", 400, Refuse),
            ("AWS.SimpleQueueService.QueueDeletedRecently", 400, Refuse),
            ("AWS.SimpleQueueService.UnsupportedOperation", 400, Refuse),
            ("AWS.SimpleQueueService.BatchRequestTooLong", 400, Reject),
            ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400, Retry),
            ("AWS.SimpleQueueService.EmptyBatchRequest", 400, Retry),
            ("AWS.SimpleQueueService.InvalidBatchEntryId", 400, Retry),
            ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400, Retry),
            ("InvalidMessageContents", 400, Reject),
            ("InvalidAttributeValue", 400, Reject),
            ("InvalidAddress", 404, Refuse),
            ("InvalidSecurity", 403, Refuse),
            ("OverLimit", 403, Retry),
            ("RequestThrottled", 403, Retry),
            ("KMS.AccessDeniedException", 400, Refuse),
            ("KMS.DisabledException", 400, Refuse),
            ("KMS.InvalidKeyUsageException", 400, Refuse),
            ("KMS.InvalidStateException", 400, Refuse),
            ("KMS.NotFoundException", 400, Refuse),
            ("KMS.OptInRequired", 403, Refuse),
            ("KMS.ThrottlingException", 400, Retry),
            // SNS
            ("NotFound", 404, Refuse),
            ("AuthorizationError", 403, Refuse),
            ("EndpointDisabled", 400, Refuse),
            ("PlatformApplicationDisabled", 400, Refuse),
            ("InvalidParameter", 400, Reject),
            ("ParameterValueInvalid", 400, Reject),
            ("BatchRequestTooLong", 400, Reject),
            ("Throttled", 429, Retry),
            ("KMSAccessDenied", 400, Refuse),
            ("KMSDisabled", 400, Refuse),
            ("KMSInvalidState", 400, Refuse),
            ("KMSNotFound", 400, Refuse),
            ("KMSOptInRequired", 403, Refuse),
            ("KMSThrottling", 400, Retry),
            ("InternalError", 500, Retry),
            // Of all services
            ("AccessDenied", 403, Refuse),
            ("AccessDeniedException", 400, Refuse),
            ("NotAuthorized", 400, Refuse),
            ("OptInRequired", 403, Refuse),
            ("InvalidClientTokenId", 403, Refuse),
            ("UnrecognizedClientException", 400, Refuse),
            ("InvalidAccessKeyId", 403, Refuse),
            ("SignatureDoesNotMatch", 403, Refuse),
            ("InvalidSignatureException", 400, Refuse),
            ("IncompleteSignature", 400, Refuse),
            ("MissingAuthenticationToken", 403, Refuse),
            ("MissingAuthenticationTokenException", 403, Refuse),
            ("ExpiredToken", 403, Refuse),
            ("ExpiredTokenException", 400, Refuse),
            ("RequestExpired", 400, Refuse),
            ("RequestTimeTooSkewed", 403, Refuse),
            ("InvalidAction", 400, Refuse),
            ("InvalidParameterValue", 400, Reject),
            ("InvalidParameterCombination", 400, Reject),
            ("MissingParameter", 400, Reject),
            ("ValidationError", 400, Reject),
            ("ValidationException", 400, Reject),
            ("Throttling", 400, Retry),
            ("ThrottlingException", 400, Retry),
            ("TooManyRequestsException", 429, Retry),
            ("RequestLimitExceeded", 503, Retry),
            ("SlowDown", 503, Retry),
            ("InternalFailure", 500, Retry),
            ("ServiceUnavailable", 503, Retry),
            ("RequestTimeout", 408, Retry),
            ("RequestEntityTooLarge", 413, Reject),
            ("SomethingNew", 400, Retry),
            ("SomethingNew", 500, Retry),
        ] {
            let outcome = classify(&target(), &answered(code, "words", status));
            assert_eq!(Class::of(&outcome), expected, "{code} {status}");
        }
    }

    #[test]
    fn every_failure_has_its_class() {
        for (failure, expected) in [
            (Failure::TimedOut, Retry),
            (Failure::Unanswered("reset".to_owned()), Retry),
            (Failure::Untrusted("unknown issuer".to_owned()), Refuse),
            (Failure::NoCredentials("none".to_owned()), Refuse),
            (Failure::Unmentioned, Retry),
            (Failure::Client("broken".to_owned()), Retry),
            (Failure::of_entry("InternalError", None), Retry),
            (Failure::of_entry("InvalidMessageContents", None), Reject),
        ] {
            assert_eq!(Class::of(&classify(&target(), &failure)), expected, "{failure:?}");
        }
    }

    #[test]
    fn a_parameter_of_the_destination_is_not_the_messages_fault() {
        let failure = answered("InvalidParameter", "Invalid parameter: TopicArn", 400);
        assert_eq!(Class::of(&classify(&target(), &failure)), Refuse);
    }

    #[test]
    fn what_is_said_about_a_message_is_not_passed_on() {
        let failure = answered("InvalidParameterValue", "Value hunter2 is invalid", 400);
        let Outcome::Reject { error } = classify(&target(), &failure) else { panic!() };
        assert!(!error.contains("hunter2"), "{error}");
    }
}
