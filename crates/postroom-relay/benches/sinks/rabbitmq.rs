//! RabbitMQ, against the same client: a batch is published as mandatory and persistent, then its
//! confirms awaited.

use crate::against::{Ready, Subject, sink};
use crate::size::Size;
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use postroom_testkit::RabbitMq;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

const SUBJECT: Subject = Subject {
    name: "rabbitmq",
    reference_is: "lapin in a bare loop: a batch published with the same properties and headers, then its confirms",
    messages: 20_000,
    concurrency: 4,
    batch_size: 100,
};

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = RabbitMq::private("").await?;
    let url = format!("amqp://{}", server.address());
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let mut arguments = FieldTable::default();
    // The queue stays as long as it is, however many rounds there were.
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(10_000));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("bench".into(), durable, arguments).await?;
    // A channel for each loop, as the sink has one for each batch under way.
    let mut channels = Vec::new();
    for _ in 0..SUBJECT.concurrency {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channels.push(channel);
    }
    let idle = Arc::new(Mutex::new(channels));
    let deliver = move |messages: Arc<[Ready]>| {
        let idle = Arc::clone(&idle);
        async move {
            let channel = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let channel = channel.context("more loops than channels")?;
            publish(&channel, &messages).await?;
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
            Ok(())
        }
    };
    let options = json!({"url": url, "exchange": "", "routing_key": "bench"});
    SUBJECT.measure(size, sink("rabbitmq:bench", options)?, deliver).await
}

async fn publish(channel: &Channel, messages: &[Ready]) -> anyhow::Result<()> {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let mut confirms = Vec::with_capacity(messages.len());
    for message in messages {
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            let value = LongString::from(value.as_bytes());
            headers.insert(ShortString::from(*name), AMQPValue::LongString(value));
        }
        let properties = BasicProperties::default()
            .with_message_id(ShortString::from(message.event_id.as_str()))
            .with_content_type("application/json".into())
            .with_type("bench.event.v1".into())
            .with_delivery_mode(2)
            .with_timestamp(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
            .with_headers(headers);
        let body = message.body.as_bytes();
        let published = channel.basic_publish("".into(), "bench".into(), options, body, properties);
        confirms.push(published.await?);
    }
    for confirmation in try_join_all(confirms).await? {
        ensure!(matches!(confirmation, Confirmation::Ack(None)), "{confirmation:?}");
    }
    Ok(())
}
