//! What a failure at Kafka means for a message.

use super::config::KafkaConfig;
use postroom_core::Outcome;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// What went wrong between librdkafka and the brokers, as it was told last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Trouble {
    pub(super) code: Code,
    /// librdkafka's words, without secrets.
    pub(super) reason: String,
}

impl Trouble {
    /// Whether the brokers were reached, and did not let us in.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.code,
            Code::Authentication
                | Code::SSL
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState
                | Code::UnsupportedFeature
                | Code::ClusterAuthorizationFailed
        )
    }
}

/// Whether the broker may have meant another message of the same request: what it says of one it
/// says of all of them.
pub(super) fn concerns_the_request(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidRecord
            | Code::InvalidDifferentRecord
            | Code::InvalidTimestamp
    )
}

/// The codes of brokers, and librdkafka's own, which are negative.
pub(super) fn classify(config: &KafkaConfig, code: Code, trouble: Option<&Trouble>) -> Outcome {
    let topic = &config.topic;
    let said = format!("`{topic}` at {} answered {} ({code:?})", config.brokers, code as i32);
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            Outcome::refuse(format!(
                "{said}: create the topic, allow this user to Describe it, or correct the \
                 integration's `topic`"
            ))
        }
        Code::InvalidTopic => Outcome::refuse(format!("{said}: correct the integration's `topic`")),
        // Brokers that create topics could not create this one.
        Code::InvalidReplicationFactor | Code::InvalidPartitions => {
            Outcome::refuse(format!("{said}: create the topic by hand"))
        }
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Outcome::refuse(format!(
            "{said}: allow this user to Write to the topic and to Describe it, and IdempotentWrite \
             on the cluster where brokers are older than 2.8"
        )),
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::SecurityDisabled
        | Code::DelegationTokenExpired => Outcome::refuse(format!(
            "{}: check `security.protocol` and what begins with `sasl.` in the integration's \
             `settings`",
            because(said, trouble)
        )),
        Code::SSL => Outcome::refuse(format!(
            "{}: check the brokers' certificates and what begins with `ssl.` in the integration's \
             `settings`",
            because(said, trouble)
        )),
        Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::UnsupportedForMessageFormat
        | Code::InvalidRequiredAcks => Outcome::refuse(format!(
            "{said}: Postroom needs brokers of version 0.11 or later, and the topic's messages in \
             a format with headers"
        )),
        Code::UnsupportedCompressionType => {
            Outcome::refuse(format!("{said}: set the integration's `compression` to another"))
        }
        Code::MessageSizeTooLarge | Code::InvalidMessageSize | Code::MessageBatchTooLarge => {
            Outcome::reject(format!(
                "{said}: send a reference instead, or raise the topic's `max.message.bytes` and \
                 `message.max.bytes` in the integration's `settings`, and redrive it"
            ))
        }
        Code::InvalidRecord | Code::InvalidTimestamp => Outcome::reject(format!(
            "{said}: the topic's settings do not allow this record; correct them or the row, and \
             redrive it"
        )),
        // Unknown, or not now: no leader, too few replicas, lost connections, a queue that stays
        // full, a sequence that broke.
        _ => match trouble.filter(|trouble| trouble.is_refusal() && trouble.code != code) {
            Some(trouble) => classify(config, trouble.code, Some(trouble)),
            None => Outcome::retry(because(said, trouble)),
        },
    }
}

/// The batch's time is up.
pub(super) fn timed_out(config: &KafkaConfig, trouble: Option<&Trouble>) -> Outcome {
    classify(config, Code::OperationTimedOut, trouble)
}

/// librdkafka cannot be set up with these settings.
pub(super) fn unusable(config: &KafkaConfig, error: &KafkaError) -> Outcome {
    let words = match error {
        KafkaError::ClientCreation(words) => config.settings.redact(words),
        // Its words would show the value.
        KafkaError::ClientConfig(_, _, name, _) => format!("`{name}` has a value it does not take"),
        _ => "it does not say why".to_owned(),
    };
    Outcome::refuse(format!(
        "librdkafka cannot work with the integration's `settings`: {words}: correct them"
    ))
}

fn because(said: String, trouble: Option<&Trouble>) -> String {
    match trouble {
        Some(trouble) => format!("{said}: {}", trouble.reason),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};
    use crate::registry::Destination;
    use serde_json::json;
    use std::time::Duration;

    fn config() -> KafkaConfig {
        let options = json!({"brokers": "a:9092", "settings": {"sasl.password": "hunter2"}});
        let mut options = Options::new(options.as_object().unwrap().clone());
        let to = Destination { integration: "kafka:payments", timeout: Duration::from_secs(1) };
        KafkaConfig::read(&mut options, &to).unwrap()
    }

    #[test]
    fn every_code_has_its_class_and_what_is_final_has_a_remedy() {
        for (code, expected) in [
            // librdkafka's own.
            (Code::BadMessage, Retry),
            (Code::BadCompression, Retry),
            (Code::BrokerDestroy, Retry),
            (Code::Fail, Retry),
            (Code::BrokerTransportFailure, Retry),
            (Code::CriticalSystemResource, Retry),
            (Code::Resolve, Retry),
            (Code::MessageTimedOut, Retry),
            (Code::UnknownPartition, Refuse),
            (Code::UnknownTopic, Refuse),
            (Code::AllBrokersDown, Retry),
            (Code::OperationTimedOut, Retry),
            (Code::QueueFull, Retry),
            (Code::ISRInsufficient, Retry),
            (Code::SSL, Refuse),
            (Code::Authentication, Refuse),
            (Code::TimedOutQueue, Retry),
            (Code::UnsupportedFeature, Refuse),
            (Code::PurgeQueue, Retry),
            (Code::PurgeInflight, Retry),
            (Code::Fatal, Retry),
            (Code::GaplessGuarantee, Retry),
            (Code::InvalidDifferentRecord, Retry),
            // The brokers'.
            (Code::Unknown, Retry),
            (Code::InvalidMessage, Retry), // damaged on its way
            (Code::UnknownTopicOrPartition, Refuse),
            (Code::InvalidMessageSize, Reject),
            (Code::LeaderNotAvailable, Retry),
            (Code::NotLeaderForPartition, Retry),
            (Code::RequestTimedOut, Retry),
            (Code::BrokerNotAvailable, Retry),
            (Code::ReplicaNotAvailable, Retry),
            (Code::MessageSizeTooLarge, Reject),
            (Code::NetworkException, Retry),
            (Code::CoordinatorLoadInProgress, Retry),
            (Code::CoordinatorNotAvailable, Retry),
            (Code::NotCoordinator, Retry),
            (Code::InvalidTopic, Refuse),
            (Code::MessageBatchTooLarge, Reject),
            (Code::NotEnoughReplicas, Retry),
            (Code::NotEnoughReplicasAfterAppend, Retry),
            (Code::InvalidRequiredAcks, Refuse),
            (Code::TopicAuthorizationFailed, Refuse),
            (Code::ClusterAuthorizationFailed, Refuse),
            (Code::InvalidTimestamp, Reject),
            (Code::UnsupportedSASLMechanism, Refuse),
            (Code::IllegalSASLState, Refuse),
            (Code::UnsupportedVersion, Refuse),
            (Code::InvalidPartitions, Refuse),
            (Code::InvalidReplicationFactor, Refuse),
            (Code::NotController, Retry),
            (Code::InvalidRequest, Retry),
            (Code::UnsupportedForMessageFormat, Refuse),
            (Code::PolicyViolation, Retry),
            (Code::OutOfOrderSequenceNumber, Retry),
            (Code::DuplicateSequenceNumber, Retry),
            (Code::InvalidProducerEpoch, Retry),
            (Code::TransactionalIdAuthorizationFailed, Refuse),
            (Code::SecurityDisabled, Refuse),
            (Code::KafkaStorageError, Retry),
            (Code::SaslAuthenticationFailed, Refuse),
            (Code::UnknownProducerId, Retry),
            (Code::DelegationTokenExpired, Refuse),
            (Code::FencedLeaderEpoch, Retry),
            (Code::UnknownLeaderEpoch, Retry),
            (Code::UnsupportedCompressionType, Refuse),
            (Code::InvalidRecord, Reject),
            (Code::ThrottlingQuotaExceeded, Retry),
            (Code::ProducerFenced, Retry),
            (Code::UnknownTopicId, Retry),
            (Code::RebootstrapRequired, Retry),
        ] {
            let outcome = classify(&config(), code, None);
            assert_eq!(Class::of(&outcome), expected, "{code:?}");
        }
    }

    #[test]
    fn behind_a_timeout_there_may_be_a_refusal() {
        let trouble = |code| Trouble { code, reason: "said so".to_owned() };
        for (code, expected) in [
            (Code::BrokerTransportFailure, Retry),
            (Code::Resolve, Retry),
            (Code::AllBrokersDown, Retry),
            (Code::Authentication, Refuse),
            (Code::SSL, Refuse),
            (Code::UnsupportedFeature, Refuse),
            (Code::ClusterAuthorizationFailed, Refuse),
        ] {
            let outcome = timed_out(&config(), Some(&trouble(code)));
            assert_eq!(Class::of(&outcome), expected, "{code:?}");
        }
        let Outcome::Retry { error, .. } =
            timed_out(&config(), Some(&trouble(Code::BrokerTransportFailure)))
        else {
            panic!("a retry")
        };
        assert!(error.contains("said so"), "{error}");
    }

    #[test]
    fn what_is_said_of_a_request_is_not_believed_of_each_message() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord, Code::InvalidDifferentRecord] {
            assert!(concerns_the_request(code), "{code:?}");
        }
        assert!(!concerns_the_request(Code::TopicAuthorizationFailed));
    }

    #[test]
    fn fault_38_settings_that_cannot_be_used_are_not_shown() {
        for error in [
            KafkaError::ClientCreation("no key: hunter2".to_owned()),
            KafkaError::ClientConfig(
                rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
                "hunter2".to_owned(),
                "sasl.password".to_owned(),
                "hunter2".to_owned(),
            ),
        ] {
            let outcome = unusable(&config(), &error);
            assert_eq!(Class::of(&outcome), Refuse);
            assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
        }
    }
}
