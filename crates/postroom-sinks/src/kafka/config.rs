//! Which brokers, which topic, and what the records are like.

use super::record::Key;
use super::settings::Settings;
use super::sink::KafkaSink;
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination};
use crate::wrapping::Wrapping;
use postroom_core::Sink;
use rdkafka::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// The longest name of a topic.
const TOPIC_MAX: usize = 249;

/// Which brokers, which topic, and what the records are like.
#[derive(Clone, Debug)]
pub(super) struct KafkaConfig {
    /// `host:port,host:port`.
    pub(super) brokers: String,
    pub(super) topic: String,
    pub(super) key: Key,
    pub(super) wrapping: Wrapping,
    pub(super) settings: Settings,
    compression: &'static str,
    /// How long a batch may take.
    pub(super) limit: Duration,
}

impl KafkaConfig {
    pub(super) fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let brokers = brokers(options);
        let topic = topic(options, to.channel());
        let keys = [("event_id", Key::EventId), ("ordering_key", Key::OrderingKey)];
        // Left out, it is the event id; what an ordered lane asks for will come with `to`.
        let key = options.choice("key", &keys).unwrap_or_default();
        let codecs = ["none", "lz4", "zstd", "snappy"].map(|codec| (codec, codec));
        let compression = options.choice("compression", &codecs).unwrap_or("none");
        let settings = Settings::read(options, "settings");
        let wrapping = Wrapping::read(options);
        Some(Self {
            brokers: brokers?,
            topic: topic?,
            key,
            wrapping,
            settings,
            compression,
            limit: to.own_timeout(),
        })
    }

    /// The producer's configuration: what can be changed, what was, and what cannot be.
    pub(super) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        let milliseconds = |time: Duration, least: u128, most: u128| {
            time.as_millis().clamp(least, most).to_string()
        };
        for (name, value) in [
            ("client.id", "postroom"),
            // A lane hands over whole batches: there is little to wait for.
            ("linger.ms", "1"),
            // What all batches under way may occupy.
            ("queue.buffering.max.kbytes", "65536"),
            // The same partition for the same key as with Kafka's own producer.
            ("partitioner", "murmur2_random"),
            ("reconnect.backoff.ms", "100"),
            // Brokers that are back are found within a second, not ten.
            ("reconnect.backoff.max.ms", "1000"),
            ("socket.keepalive.enable", "true"),
            // A topic that is not there is told within the attempt.
            ("topic.metadata.propagation.max.ms", "1000"),
        ] {
            client.set(name, value);
        }
        for (name, value) in self.settings.iter() {
            client.set(name, value);
        }
        let hour = 3_600_000;
        for (name, value) in [
            ("bootstrap.servers", self.brokers.clone()),
            ("enable.idempotence", "true".to_owned()),
            ("acks", "all".to_owned()),
            ("compression.codec", self.compression.to_owned()),
            ("message.timeout.ms", milliseconds(self.message_timeout(), 1, hour)),
            ("request.timeout.ms", milliseconds(self.message_timeout(), 1, 900_000)),
            // A connection on which nothing comes back is given up on.
            ("socket.timeout.ms", milliseconds(self.limit, 10, 300_000)),
            ("socket.connection.setup.timeout.ms", milliseconds(self.limit, 1_000, hour)),
        ] {
            client.set(name, value);
        }
        client
    }

    /// librdkafka looks for messages that are too old once a second: its word on them comes
    /// before the batch has to be settled.
    fn message_timeout(&self) -> Duration {
        self.limit.saturating_sub(Duration::from_millis(1_500)).max(self.limit / 2)
    }
}

impl Build for KafkaConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(KafkaSink::new(self.clone())))
    }
}

fn brokers(options: &mut Options) -> Option<String> {
    let expected = "the address of one or more brokers, such as \"host:9092,host:9092\"";
    let text: String = options.required("brokers", expected)?;
    let brokers: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_address = |broker: &&str| {
        !broker.is_empty() && !broker.contains('@') && broker.chars().all(|c| c.is_ascii_graphic())
    };
    if !brokers.iter().all(is_address) {
        let hint = "user and password go into `settings`: sasl.username, sasl.password";
        options.fault(&["brokers"], format!("must be {expected}"), Some(hint.to_owned()));
        return None;
    }
    Some(brokers.join(","))
}

fn topic(options: &mut Options, channel: &str) -> Option<String> {
    let own: Option<String> = options.optional("topic", "the name of a topic");
    let topic = own.unwrap_or_else(|| channel.to_owned());
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_topic = (1..=TOPIC_MAX).contains(&topic.len())
        && topic.chars().all(is_legal)
        && !matches!(topic.as_str(), "." | "..");
    if !is_topic {
        let problem = "must be the name of a topic: letters, digits, `.`, `_` and `-`, at most 249";
        let hint = "without it, the topic is the part of the integration's name after `:`";
        options.fault(&["topic"], problem, Some(hint.to_owned()));
        return None;
    }
    Some(topic)
}

#[cfg(test)]
mod tests {
    use super::super::KIND;
    use super::*;
    use crate::options::OptionFault;
    use crate::registry::SinkConfig;
    use serde_json::{Value, json};

    fn read(integration: &str, options: Value) -> Result<KafkaConfig, Vec<OptionFault>> {
        let Value::Object(options) = options else { panic!("options are a table") };
        let mut options = Options::new(options);
        let to = Destination { integration, timeout: Duration::from_secs(10) };
        let config = KafkaConfig::read(&mut options, &to);
        let faults = options.finish(KIND.keys);
        if faults.is_empty() { Ok(config.unwrap()) } else { Err(faults) }
    }

    fn faults(options: Value) -> Vec<String> {
        let faults = read("kafka:payments", options).unwrap_err();
        faults.iter().map(|fault| format!("{} {}", fault.path.join("."), fault.problem)).collect()
    }

    #[test]
    fn the_channel_is_the_topic_unless_there_is_another() {
        let config = read("kafka:payments", json!({"brokers": "a:9092, b:9092"})).unwrap();
        assert_eq!((&*config.brokers, &*config.topic), ("a:9092,b:9092", "payments"));
        let config = read("kafka:x", json!({"brokers": "a", "topic": "shop.orders_v1-x"})).unwrap();
        assert_eq!(config.topic, "shop.orders_v1-x");
    }

    #[test]
    fn every_fault_is_found_and_shows_no_value() {
        let found = faults(json!({
            "brokers": "relay:hunter2@a:9092", "topic": "a b", "key": "hunter2",
            "compression": "gzip",
            "settings": {"acks": "1", "sasl.pasword": "hunter2", "linger.ms": "hunter2"},
        }));
        let starts = [
            "brokers must be the address",
            "topic must be the name",
            "key must be one of",
            "compression must be one of",
            "settings.acks ",
            "settings.linger.ms ",
            "settings.sasl.pasword ",
        ];
        assert_eq!(found.len(), starts.len(), "{found:?}");
        for start in starts {
            assert!(found.iter().any(|fault| fault.starts_with(start)), "{start}: {found:?}");
        }
        assert!(!found.join(" ").contains("hunter2"), "{found:?}");
        for bad in ["", "a,,b", "a b:1", "ü:1"] {
            assert_eq!(faults(json!({"brokers": bad})).len(), 1, "{bad}");
        }
        for bad in ["", ".", "..", "a/b", "a:b", "ä", &"x".repeat(250)] {
            assert_eq!(faults(json!({"brokers": "a", "topic": bad})).len(), 1, "{bad}");
        }
    }

    #[test]
    fn librdkafka_accepts_the_configuration_at_every_timeout() {
        let options = json!({
            "brokers": "a:9092", "compression": "zstd",
            "settings": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "relay", "sasl.password": "hunter2", "linger.ms": 20},
        });
        for milliseconds in [1, 50, 3_000, 30_000, 3_600_000] {
            let mut config = read("kafka:payments", options.clone()).unwrap();
            config.limit = Duration::from_millis(milliseconds);
            let native = config.client().create_native_config().unwrap();
            assert_eq!(native.get("acks").unwrap(), "-1");
            assert_eq!(native.get("enable.idempotence").unwrap(), "true");
            assert_eq!(native.get("linger.ms").unwrap(), "20");
        }
    }

    #[test]
    fn a_message_is_given_up_on_before_its_batch_is() {
        let mut config = read("kafka:payments", json!({"brokers": "a"})).unwrap();
        for (limit, expected) in [(27_000, 25_500), (2_700, 1_350), (2, 1)] {
            config.limit = Duration::from_millis(limit);
            assert_eq!(config.message_timeout(), Duration::from_millis(expected));
        }
    }

    #[test]
    fn fault_38_debug_shows_no_setting() {
        let options = json!({"brokers": "a:9092", "settings": {"sasl.password": "hunter2"}});
        let config = read("kafka:payments", options).unwrap();
        let shown = format!("{config:?} {:?}", SinkConfig::new(config.clone()));
        assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    }
}
