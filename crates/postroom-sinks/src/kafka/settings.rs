//! librdkafka's own settings, passed through but for those that Postroom's promises rest on.

use crate::options::{Options, nearest};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Settings that are Postroom's, and why, or what to set instead.
const OURS: [(&str, &str); 24] = [
    ("acks", ALL_REPLICAS),
    ("request.required.acks", ALL_REPLICAS),
    ("enable.idempotence", IDEMPOTENT),
    ("enable.gapless.guarantee", IDEMPOTENT),
    ("max.in.flight", IDEMPOTENT),
    ("max.in.flight.requests.per.connection", IDEMPOTENT),
    ("message.send.max.retries", IDEMPOTENT),
    ("queuing.strategy", IDEMPOTENT),
    ("retries", IDEMPOTENT),
    ("transactional.id", "the outbox is the transaction: Postroom needs none of Kafka's"),
    ("delivery.report.only.error", "a message is delivered when Kafka has said so"),
    ("bootstrap.servers", "set the integration's `brokers`"),
    ("metadata.broker.list", "set the integration's `brokers`"),
    ("compression.codec", "set the integration's `compression`"),
    ("compression.type", "set the integration's `compression`"),
    ("delivery.timeout.ms", TIMEOUT),
    ("message.timeout.ms", TIMEOUT),
    ("request.timeout.ms", TIMEOUT),
    ("socket.connection.setup.timeout.ms", TIMEOUT),
    ("socket.timeout.ms", TIMEOUT),
    ("debug", "librdkafka's log can hold secrets, and is not shown"),
    ("log_level", "librdkafka's log can hold secrets, and is not shown"),
    ("plugin.library.paths", "Postroom loads no code"),
    ("test.mock.num.brokers", "messages would go nowhere"),
];
const ALL_REPLICAS: &str = "a message is delivered when all in-sync replicas have it";
const IDEMPOTENT: &str = "the producer is idempotent and keeps the order, and this would change it";
const TIMEOUT: &str = "it follows from the integration's `timeout`: set that";

/// Some that are often used, for suggestions.
const USUAL: [&str; 16] = [
    "batch.size",
    "client.id",
    "enable.ssl.certificate.verification",
    "linger.ms",
    "message.max.bytes",
    "partitioner",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
];

/// Parts of names whose values are nobody's business.
const SECRETIVE: [&str; 7] =
    ["password", "secret", "username", "pem", "token", "oauthbearer", "jaas"];

/// Settings by name. Their values are not shown.
#[derive(Clone, Default)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Reads a table. Each setting is shown to librdkafka, which knows what it takes.
    pub(super) fn read(options: &mut Options, key: &str) -> Self {
        let table: Option<Map<String, Value>> =
            options.optional(key, "a table of librdkafka's settings");
        let mut settings = BTreeMap::new();
        for (name, value) in table.unwrap_or_default() {
            let value = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(is_so) => is_so.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    options.fault(&[key, &name], "must be a string, a number or a boolean", None);
                    continue;
                }
            };
            match check(&name, &value) {
                Ok(()) => drop(settings.insert(name, value)),
                Err((problem, hint)) => options.fault(&[key, &name], problem, hint),
            }
        }
        Self(settings)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A text of librdkafka's without the values that are secret, in case it has one in it.
    pub(super) fn redact(&self, text: &str) -> String {
        let is_secret = |name: &str| SECRETIVE.iter().any(|part| name.contains(part));
        let secrets = self.iter().filter(|(name, value)| is_secret(name) && !value.is_empty());
        secrets.fold(text.to_owned(), |text, (_, secret)| text.replace(secret, "***"))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What is wrong with a setting, and what to do about it.
fn check(name: &str, value: &str) -> Result<(), (&'static str, Option<String>)> {
    if let Some((_, reason)) = OURS.iter().find(|(ours, _)| *ours == name) {
        return Err(("cannot be set", Some((*reason).to_owned())));
    }
    let mut config = ClientConfig::new();
    config.set(name, value);
    match config.create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            let near = nearest(name, &USUAL);
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            Err(("is no setting of librdkafka", hint))
        }
        // The library's words would show the value.
        Err(_) => {
            let hint = "its CONFIGURATION.md has the values; this build has neither Kerberos nor \
                        OAuth by OIDC";
            Err(("has a value that librdkafka does not take", Some(hint.to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_promises_rest_on_cannot_be_set() {
        for (name, reason) in OURS {
            let (problem, hint) = check(name, "1").unwrap_err();
            assert_eq!((problem, hint.as_deref()), ("cannot be set", Some(reason)), "{name}");
            // It is one that librdkafka has, under this very name.
            let mut config = ClientConfig::new();
            config.set(name, "hunter2");
            let error = config.create_native_config().err();
            let unknown = RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN;
            let is_unknown = matches!(&error,
                Some(KafkaError::ClientConfig(result, ..)) if *result == unknown);
            assert!(!is_unknown, "{name}");
        }
    }

    #[test]
    fn what_sasl_and_tls_need_can_be_set() {
        for (name, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.mechanisms", "SCRAM-SHA-256"),
            ("sasl.username", "relay"),
            ("sasl.password", "hunter2"),
            ("ssl.ca.location", "/etc/kafka/ca.pem"),
            ("ssl.certificate.location", "/etc/kafka/relay.pem"),
            ("ssl.key.location", "/etc/kafka/relay.key"),
            ("ssl.key.password", "hunter2"),
            ("enable.ssl.certificate.verification", "true"),
            ("ssl.endpoint.identification.algorithm", "https"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}");
        }
        for name in USUAL {
            assert_ne!(check(name, "\0").unwrap_err().0, "is no setting of librdkafka", "{name}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        let (problem, hint) = check("sasl.pasword", "hunter2").unwrap_err();
        assert_eq!(problem, "is no setting of librdkafka");
        assert_eq!(hint.as_deref(), Some("did you mean `sasl.password`?"));
        let (problem, _) = check("linger.ms", "soon").unwrap_err();
        assert_eq!(problem, "has a value that librdkafka does not take");
    }

    #[test]
    fn fault_38_a_text_with_a_secret_loses_it() {
        let settings = [("sasl.password", "hunter2"), ("client.id", "relay"), ("ssl.key.pem", "")];
        let settings =
            Settings(settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(settings.redact("relay: no hunter2, hunter2"), "relay: no ***, ***");
    }
}
