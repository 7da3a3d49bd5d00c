//! What a failure at an MQTT broker means for a message.

use crate::tls;
use postroom_core::Outcome;
use rumqttc::v5::ConnectionError;
use rumqttc::v5::mqttbytes::v5::ConnectReturnCode;

/// How publishing one message failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The broker answered that it does not take it.
    Refused(Refusal),
    /// Over what the broker said it takes.
    TooLarge { bytes: usize, limit: usize },
    /// No acknowledgement in time.
    TimedOut,
    /// The connection ended first.
    Lost(String),
}

/// The reasons that PUBACK and PUBREC have for a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    Unspecified,
    ImplementationSpecific,
    NotAuthorized,
    TopicNameInvalid,
    PacketIdentifierInUse,
    QuotaExceeded,
    PayloadFormatInvalid,
}

/// `place` is the broker's host and port. `is_fixed`: every message has the same topic.
pub(super) fn classify(place: &str, is_fixed: bool, failure: &Failure) -> Outcome {
    match failure {
        Failure::Refused(refusal) => refused(place, is_fixed, *refusal),
        Failure::TooLarge { bytes, limit } => Outcome::reject(format!(
            "the message has {bytes} bytes and {place} takes {limit}: send a reference instead, or \
             raise the broker's limit and redrive it"
        )),
        Failure::TimedOut => Outcome::retry(format!("no acknowledgement from {place} in time")),
        Failure::Lost(error) => Outcome::retry(format!("no acknowledgement from {place}: {error}")),
    }
}

fn refused(place: &str, is_fixed: bool, refusal: Refusal) -> Outcome {
    let said = |code: u8, name: &str| format!("{place} answered 0x{code:x} ({name})");
    match refusal {
        Refusal::Unspecified => Outcome::retry(said(0x80, "unspecified error")),
        Refusal::ImplementationSpecific => {
            Outcome::retry(said(0x83, "implementation specific error"))
        }
        Refusal::NotAuthorized => {
            let error = format!(
                "{}: let this user publish to the topic, or correct the integration's `topic`",
                said(0x87, "not authorized")
            );
            // The topic of one message must not keep the others from theirs.
            if is_fixed { Outcome::refuse(error) } else { Outcome::retry(error) }
        }
        Refusal::TopicNameInvalid => Outcome::reject(format!(
            "{}: correct the row's fields or the integration's `topic`",
            said(0x90, "topic name invalid")
        )),
        Refusal::PacketIdentifierInUse => Outcome::retry(said(0x91, "packet identifier in use")),
        Refusal::QuotaExceeded => Outcome::retry(said(0x97, "quota exceeded")),
        Refusal::PayloadFormatInvalid => Outcome::reject(format!(
            "{}: correct the payload, or the broker's check of it",
            said(0x99, "payload format invalid")
        )),
    }
}

/// How connecting failed.
pub(super) fn classify_connect(place: &str, error: &ConnectionError) -> Outcome {
    match error {
        ConnectionError::ConnectionRefused(code) => refused_connection(place, *code),
        error if tls::is_behind(error) => Outcome::refuse(format!(
            "no TLS with {place}: {error}: check the broker's certificate and the integration's \
             `ca_file`"
        )),
        error => Outcome::retry(format!("cannot connect to {place}: {error}")),
    }
}

fn refused_connection(place: &str, code: ConnectReturnCode) -> Outcome {
    use ConnectReturnCode as Code;
    let said = format!("{place} refuses the connection ({code:?})");
    match code {
        Code::BadUserNamePassword
        | Code::NotAuthorized
        | Code::Banned
        | Code::BadAuthenticationMethod => Outcome::refuse(format!(
            "{said}: check the user and password in the integration's `url`"
        )),
        Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion => {
            Outcome::refuse(format!("{said}: MQTT version 5 is needed"))
        }
        Code::BadClientId | Code::ClientIdentifierNotValid => {
            Outcome::refuse(format!("{said}: let clients in whose name begins with `postroom-`"))
        }
        Code::UseAnotherServer | Code::ServerMoved => {
            Outcome::refuse(format!("{said}: correct the integration's `url`"))
        }
        Code::QoSNotSupported => Outcome::refuse(format!("{said}: lower the integration's `qos`")),
        Code::Success
        | Code::ServiceUnavailable
        | Code::UnspecifiedError
        | Code::MalformedPacket
        | Code::ProtocolError
        | Code::ImplementationSpecificError
        | Code::ServerUnavailable
        | Code::ServerBusy
        | Code::TopicNameInvalid
        | Code::PacketTooLarge
        | Code::QuotaExceeded
        | Code::PayloadFormatInvalid
        | Code::RetainNotSupported
        | Code::ConnectionRateExceeded => Outcome::retry(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};

    #[test]
    fn every_failure_has_its_class_and_what_is_final_has_a_remedy() {
        for (failure, expected) in [
            (Failure::Refused(Refusal::Unspecified), Retry),
            (Failure::Refused(Refusal::ImplementationSpecific), Retry),
            (Failure::Refused(Refusal::NotAuthorized), Refuse),
            (Failure::Refused(Refusal::TopicNameInvalid), Reject),
            (Failure::Refused(Refusal::PacketIdentifierInUse), Retry),
            (Failure::Refused(Refusal::QuotaExceeded), Retry),
            (Failure::Refused(Refusal::PayloadFormatInvalid), Reject),
            (Failure::TooLarge { bytes: 2, limit: 1 }, Reject),
            (Failure::TimedOut, Retry),
            (Failure::Lost("reset".to_owned()), Retry),
        ] {
            let outcome = classify("host:1883", true, &failure);
            assert_eq!(Class::of(&outcome), expected, "{failure:?}");
        }
        for (refusal, expected) in [
            (Refusal::NotAuthorized, Retry),
            (Refusal::TopicNameInvalid, Reject),
            (Refusal::PayloadFormatInvalid, Reject),
        ] {
            let outcome = classify("host:1883", false, &Failure::Refused(refusal));
            assert_eq!(Class::of(&outcome), expected, "{refusal:?} of a topic from a template");
        }
    }

    #[test]
    fn every_refused_connection_has_its_class() {
        use ConnectReturnCode as Code;
        for (code, expected) in [
            (Code::RefusedProtocolVersion, Refuse),
            (Code::BadClientId, Refuse),
            (Code::ServiceUnavailable, Retry),
            (Code::UnspecifiedError, Retry),
            (Code::MalformedPacket, Retry),
            (Code::ProtocolError, Retry),
            (Code::ImplementationSpecificError, Retry),
            (Code::UnsupportedProtocolVersion, Refuse),
            (Code::ClientIdentifierNotValid, Refuse),
            (Code::BadUserNamePassword, Refuse),
            (Code::NotAuthorized, Refuse),
            (Code::ServerUnavailable, Retry),
            (Code::ServerBusy, Retry),
            (Code::Banned, Refuse),
            (Code::BadAuthenticationMethod, Refuse),
            (Code::QuotaExceeded, Retry),
            (Code::QoSNotSupported, Refuse),
            (Code::UseAnotherServer, Refuse),
            (Code::ServerMoved, Refuse),
            (Code::ConnectionRateExceeded, Retry),
        ] {
            let error = ConnectionError::ConnectionRefused(code);
            assert_eq!(Class::of(&classify_connect("host:1883", &error)), expected, "{code:?}");
        }
    }
}
