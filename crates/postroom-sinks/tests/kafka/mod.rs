//! The Kafka sink against Kafka's own broker, read back by kcat.

mod broker;
mod cluster;
mod mocked;
mod records;
mod security;

use crate::destination::sink;
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use postroom_testkit::{Kafka, KafkaRecord, Proxy, skip};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use uuid::Uuid;

/// What the topics of these tests take at most; a broker says so, and the sink does not know.
const TOPIC_BYTES: &str = "100000";

/// A topic of its own, where there is a broker.
struct Topic {
    kafka: Result<&'static Kafka, &'static str>,
    name: String,
}

async fn start() -> Topic {
    match Kafka::shared().await {
        Ok(kafka) => Topic::on(kafka, 1).await,
        Err(reason) => Topic { kafka: Err(reason), name: String::new() },
    }
}

/// A topic, or a skip of this test.
async fn topic(test: &str) -> Option<Topic> {
    let topic = start().await;
    if let Err(reason) = topic.kafka {
        skip(&format!("kafka: {test}"), reason);
        return None;
    }
    Some(topic)
}

impl Topic {
    async fn on(kafka: &'static Kafka, partitions: i32) -> Self {
        let name = format!("t{}", Uuid::now_v7().simple());
        let settings = [("max.message.bytes", TOPIC_BYTES)];
        kafka.create_topic(&name, partitions, &settings).await.unwrap();
        Self { kafka: Ok(kafka), name }
    }

    fn kafka(&self) -> &'static Kafka {
        self.kafka.unwrap()
    }

    fn with(&self, options: Value) -> Arc<dyn Sink> {
        let mut all = json!({"brokers": self.kafka().brokers()});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink(&format!("kafka:{}", self.name), all)
    }

    async fn records(&self) -> Vec<KafkaRecord> {
        self.kafka().read(&self.name).await.unwrap()
    }
}

/// A message of this many bytes and a few.
fn large(event_id: &str, bytes: usize) -> Message {
    let mut large = message(event_id);
    large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(bytes)));
    large
}

fn header<'a>(record: &'a KafkaRecord, name: &str) -> Option<&'a str> {
    let mut found = record.headers.iter().filter(|(own, _)| own == name);
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{name} is there twice: {record:?}");
    value
}

impl SinkHarness for Topic {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn missing(&self) -> Option<&str> {
        self.kafka.err()
    }

    fn server(&self) -> SocketAddr {
        self.kafka().address()
    }

    fn proxy(&self) -> Result<Proxy, &'static str> {
        self.kafka().proxy()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        sink(&format!("kafka:{}", self.name), json!({"brokers": address.to_string()}))
    }

    async fn received(&self) -> Vec<Received> {
        let received = self.records().await.into_iter().map(|record| Received {
            key: header(&record, "idempotency-key").unwrap().to_owned(),
            body: record.value,
            attributes: record.headers.into_iter().collect(),
        });
        received.collect()
    }

    /// Too large for the topic: the broker refuses the whole request that it is in.
    fn bad(&self) -> Result<Message, &'static str> {
        Ok(large("e-2", 200_000))
    }

    /// Too large for librdkafka.
    fn oversized(&self) -> Result<Message, &'static str> {
        Ok(large("e-1", 2 << 20))
    }
}

postroom_testkit::sink_contract_tests!(start);
