//! Kafka, against the same client: a batch is handed over, and each message has its answer.

use crate::against::{Ready, Subject, sink};
use crate::size::Size;
use anyhow::anyhow;
use postroom_testkit::rdkafka::ClientConfig;
use postroom_testkit::rdkafka::message::{Header, OwnedHeaders};
use postroom_testkit::rdkafka::producer::{FutureProducer, FutureRecord};
use postroom_testkit::{Kafka, skip};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

const SUBJECT: Subject = Subject {
    name: "kafka",
    reference_is: "rdkafka's FutureProducer in a bare loop: idempotent, acks=all, the same settings and headers",
    messages: 100_000,
    concurrency: 4,
    batch_size: 100,
};

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let kafka = match Kafka::shared().await {
        Ok(kafka) => kafka,
        Err(reason) => {
            skip("bench sinks: kafka", reason);
            return Ok(());
        }
    };
    let topic = format!("bench-{}", Uuid::now_v7().simple());
    kafka.create_topic(&topic, 4, &[]).await?;
    // The sink's own.
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.brokers())
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", "1")
        .set("queue.buffering.max.kbytes", "65536")
        .set("partitioner", "murmur2_random")
        .create()?;
    let options = json!({"brokers": kafka.brokers(), "topic": topic});
    let deliver = move |messages: Arc<[Ready]>| {
        let (producer, topic) = (producer.clone(), topic.clone());
        async move { publish(&producer, &topic, &messages).await }
    };
    SUBJECT.measure(size, sink("kafka:bench", options)?, deliver).await
}

async fn publish(producer: &FutureProducer, topic: &str, messages: &[Ready]) -> anyhow::Result<()> {
    let mut waiting = Vec::with_capacity(messages.len());
    for message in messages {
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 1);
        for (name, value) in &message.headers {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        headers = headers.insert(Header { key: "content-type", value: Some("application/json") });
        let record =
            FutureRecord::to(topic).key(&message.event_id).payload(&message.body).headers(headers);
        waiting.push(producer.send_result(record).map_err(|(error, _)| error)?);
    }
    for one in waiting {
        one.await?.map_err(|(error, _)| anyhow!(error))?;
    }
    Ok(())
}
