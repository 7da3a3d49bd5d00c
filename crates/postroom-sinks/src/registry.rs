//! The one list of sinks that a configuration can name.
//!
//! Validating does no I/O and finds every fault; building makes clients and spawns nothing.

#[cfg(feature = "email")]
use crate::email;
#[cfg(feature = "kafka")]
use crate::kafka;
#[cfg(feature = "mqtt")]
use crate::mqtt;
#[cfg(feature = "nats")]
use crate::nats;
use crate::options::{OptionFault, Options, nearest};
#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "gcp")]
use crate::pubsub;
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq;
#[cfg(feature = "redis")]
use crate::redis;
#[cfg(feature = "slack")]
use crate::slack;
#[cfg(feature = "sms")]
use crate::sms;
#[cfg(feature = "webhook")]
use crate::webhook;
use crate::{file, noop, stdout};
#[cfg(feature = "aws")]
use crate::{sns, sqs};
use postroom_core::Sink;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Every sink of this build, by name.
pub const SINKS: &[SinkKind] = &[
    #[cfg(feature = "email")]
    email::KIND,
    file::KIND,
    #[cfg(feature = "kafka")]
    kafka::KIND,
    #[cfg(feature = "mqtt")]
    mqtt::KIND,
    #[cfg(feature = "nats")]
    nats::KIND,
    noop::KIND,
    #[cfg(feature = "postgres")]
    postgres::KIND,
    #[cfg(feature = "gcp")]
    pubsub::KIND,
    #[cfg(feature = "rabbitmq")]
    rabbitmq::KIND,
    #[cfg(feature = "redis")]
    redis::KIND,
    #[cfg(feature = "slack")]
    slack::KIND,
    #[cfg(feature = "sms")]
    sms::KIND,
    #[cfg(feature = "aws")]
    sns::KIND,
    #[cfg(feature = "aws")]
    sqs::KIND,
    stdout::KIND,
    #[cfg(feature = "webhook")]
    webhook::KIND,
];

/// The sinks that this build was made without, and the cargo feature that brings each.
pub const LEFT_OUT: &[(&str, &str)] = &[
    #[cfg(not(feature = "email"))]
    ("email", "email"),
    #[cfg(not(feature = "kafka"))]
    ("kafka", "kafka"),
    #[cfg(not(feature = "postgres"))]
    ("postgres", "postgres"),
    #[cfg(not(feature = "slack"))]
    ("slack", "slack"),
    #[cfg(not(feature = "sms"))]
    ("sms", "sms"),
    #[cfg(not(feature = "webhook"))]
    ("webhook", "webhook"),
    #[cfg(not(feature = "mqtt"))]
    ("mqtt", "mqtt"),
    #[cfg(not(feature = "nats"))]
    ("nats", "nats"),
    #[cfg(not(feature = "rabbitmq"))]
    ("rabbitmq", "rabbitmq"),
    #[cfg(not(feature = "redis"))]
    ("redis", "redis"),
    #[cfg(not(feature = "gcp"))]
    ("pubsub", "gcp"),
    #[cfg(not(feature = "aws"))]
    ("sns", "aws"),
    #[cfg(not(feature = "aws"))]
    ("sqs", "aws"),
];

/// A sink as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct SinkKind {
    /// The part of an integration's name before `:`.
    pub name: &'static str,
    /// The options of its own that it takes.
    pub keys: &'static [&'static str],
    /// How many batches it has under way at once, unless the integration says otherwise.
    pub concurrency: usize,
    /// How long one attempt may take, unless the integration says otherwise.
    pub timeout: Duration,
    pub(crate) read: fn(&mut Options, &Destination<'_>) -> Option<SinkConfig>,
}

/// What an integration's name and its lane say about where a sink delivers.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The integration's whole name.
    pub integration: &'a str,
    /// How long one attempt may take.
    pub timeout: Duration,
}

impl<'a> Destination<'a> {
    /// The part of the name after `:`, or all of it.
    #[must_use]
    pub fn channel(&self) -> &'a str {
        self.integration.split_once(':').map_or(self.integration, |(_, channel)| channel)
    }

    /// How long a sink may take by its own clock: less than the attempt, so that what it knows
    /// by then is reported, and the rest with a cause.
    #[must_use]
    pub fn own_timeout(&self) -> Duration {
        self.timeout - self.timeout / 10
    }
}

impl SinkKind {
    /// The sink that serves an integration such as `webhook:partnerX`.
    ///
    /// # Errors
    /// When no sink has that name; the error lists those there are.
    pub fn of(integration: &str) -> Result<&'static Self, UnknownSink> {
        let name = integration.split_once(':').map_or(integration, |(name, _)| name);
        SINKS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = SINKS.iter().map(|kind| kind.name).collect();
            let feature = LEFT_OUT.iter().find(|(left_out, _)| *left_out == name);
            UnknownSink {
                name: name.to_owned(),
                feature: feature.map(|(_, feature)| *feature),
                near: nearest(name, &known),
                known,
            }
        })
    }

    /// Checks options without any I/O.
    ///
    /// # Errors
    /// Every fault there is, unknown keys included.
    pub fn validate(
        &self,
        options: Map<String, Value>,
        destination: &Destination<'_>,
    ) -> Result<SinkConfig, Vec<OptionFault>> {
        let mut options = Options::new(options);
        let config = (self.read)(&mut options, destination);
        let faults = options.finish(self.keys);
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(faults),
        }
    }
}

/// No sink has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no sink `{name}`")]
pub struct UnknownSink {
    /// The name that was asked for.
    pub name: String,
    /// The cargo feature that brings it, when this build was merely made without.
    pub feature: Option<&'static str>,
    /// The one that was probably meant.
    pub near: Option<&'static str>,
    /// Those there are.
    pub known: Vec<&'static str>,
}

impl UnknownSink {
    /// What the reader can do.
    #[must_use]
    pub fn hint(&self) -> String {
        if let Some(feature) = self.feature {
            return format!(
                "this build was made without it: build Postroom with `--features {feature}`, or \
                 with `--features full` for all of them"
            );
        }
        let known = self.known.join(", ");
        match self.near {
            Some(near) => {
                format!("did you mean `{near}`? The part before `:` names the sink: {known}")
            }
            None => format!("the part before `:` names the sink, one of: {known}"),
        }
    }
}

/// A checked configuration of one sink.
#[derive(Clone)]
pub struct SinkConfig(Arc<dyn Build>);

/// A configuration from which a sink can be made.
pub(crate) trait Build: fmt::Debug + Send + Sync {
    /// Makes the sink. Connects to nothing yet.
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError>;
}

impl SinkConfig {
    pub(crate) fn new(config: impl Build + 'static) -> Self {
        Self(Arc::new(config))
    }

    /// Makes the sink. Connects to nothing yet.
    ///
    /// # Errors
    /// When a client cannot be made, such as for a machine without root certificates.
    pub fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        self.0.build()
    }
}

impl fmt::Debug for SinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a sink could not be made from a good configuration.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BuildError {
    /// What was being done, and what the operator can do.
    pub context: String,
    /// The client library's error.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(integration: &str, options: Value) -> Result<SinkConfig, Vec<OptionFault>> {
        let Value::Object(options) = options else { panic!("options are a table") };
        let destination = Destination { integration, timeout: Duration::from_secs(1) };
        SinkKind::of(integration).unwrap().validate(options, &destination)
    }

    #[test]
    fn the_part_before_the_colon_names_the_sink() {
        assert_eq!(SinkKind::of("webhook:partner:x").unwrap().name, "webhook");
        assert_eq!(SinkKind::of("noop").unwrap().name, "noop");
    }

    #[test]
    fn an_unknown_sink_is_answered_with_those_there_are() {
        let error = SinkKind::of("webhok:x").unwrap_err();
        assert_eq!(error.to_string(), "there is no sink `webhok`");
        assert!(error.hint().starts_with("did you mean `webhook`?"));
        let error = SinkKind::of("carrier-pigeon").unwrap_err();
        assert!(
            error.hint().contains("one of: ") && error.hint().contains("noop, "),
            "{}",
            error.hint()
        );
    }

    #[test]
    fn a_sink_that_was_left_out_of_the_build_is_answered_with_how_to_get_it() {
        // This build may have all of them.
        let kafka = UnknownSink {
            name: "kafka".to_owned(),
            feature: Some("kafka"),
            near: None,
            known: Vec::new(),
        };
        let made = "this build was made without it: build Postroom with `--features kafka`, or \
                    with `--features full` for all of them";
        assert_eq!(kafka.hint(), made);
        for (name, feature) in LEFT_OUT {
            let error = SinkKind::of(&format!("{name}:x")).unwrap_err();
            assert_eq!((error.name.as_str(), error.feature), (*name, Some(*feature)));
        }
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let faults = validate("webhook:x", json!({"urll": "http://a", "headers": {"a b": "c"}}));
        let faults = faults.unwrap_err();
        let problems: Vec<String> = faults
            .iter()
            .map(|fault| format!("{} {}", fault.path.join("."), fault.problem))
            .collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("url is missing"), "{problems:?}");
        assert!(problems[1].starts_with("headers.a b "), "{problems:?}");
        assert_eq!(problems[2], "urll is unknown");
        assert_eq!(faults[2].hint.as_deref(), Some("did you mean `url`?"));
    }

    #[test]
    fn good_options_build_a_sink() {
        for (integration, options) in [
            ("noop", json!({})),
            ("stdout", json!({})),
            #[cfg(feature = "postgres")]
            ("postgres:x", json!({"url": "postgres://u:p@127.0.0.1/d"})),
            #[cfg(feature = "slack")]
            ("slack:x", json!({"url": "https://hooks.example/x", "text": "{{ event_type }}"})),
            #[cfg(feature = "sms")]
            (
                "sms:x",
                json!({"account_sid": "AC1", "auth_token": "x", "from": "1", "to": "2", "text": "3"}),
            ),
            ("file:audit", json!({"path": "audit.jsonl"})),
            #[cfg(feature = "email")]
            (
                "email:x",
                json!({"host": "h", "from": "a@b.example", "to": "c@d.example", "text": ""}),
            ),
            ("webhook:x", json!({"url": "http://203.0.114.1:1/", "headers": {"x-a": "1"}})),
            ("webhook:y", json!({"url": "https://example.org/hook?key=1"})),
            #[cfg(feature = "kafka")]
            ("kafka:orders", json!({"brokers": "127.0.0.1:9092", "settings": {"linger.ms": 5}})),
            #[cfg(feature = "mqtt")]
            ("mqtt:orders", json!({"url": "mqtts://a:b@127.0.0.1", "qos": 2})),
            #[cfg(feature = "nats")]
            ("nats:orders", json!({"url": "nats://a:b@127.0.0.1", "subject": "{tenant}.x"})),
            #[cfg(feature = "gcp")]
            ("pubsub:orders", json!({"project": "shop", "endpoint": "http://127.0.0.1:8085"})),
            #[cfg(feature = "rabbitmq")]
            ("rabbitmq:orders", json!({"url": "amqp://a:b@127.0.0.1/shop", "exchange": ""})),
            #[cfg(feature = "redis")]
            ("redis:orders", json!({"url": "rediss://:b@127.0.0.1/3", "max_length": 100})),
            #[cfg(feature = "aws")]
            ("sns:orders", json!({"topic_arn": "arn:aws:sns:eu-west-1:123456789012:orders"})),
            #[cfg(feature = "aws")]
            ("sqs:orders.fifo", json!({"region": "eu-west-1"})),
        ] {
            assert!(validate(integration, options).unwrap().build().is_ok(), "{integration}");
        }
    }

    #[test]
    fn wrong_types_are_named() {
        let faults = validate("file:x", json!({"path": 7})).unwrap_err();
        assert_eq!(faults[0].problem, "must be the path of a file");
        assert!(validate("noop", json!({"url": "x"})).is_err());
    }
}
