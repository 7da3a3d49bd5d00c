//! The sink that publishes to a topic of Apache Kafka.
//!
//! A message is delivered once all in-sync replicas of its partition have it. The producer is
//! idempotent: what librdkafka sends again within an attempt is stored once, and in order. What is
//! tried again by the relay is a record of its own, with the same idempotency key in its headers.

mod classify;
mod config;
mod link;
mod record;
mod settings;
mod sink;
mod tray;

use crate::registry::{SinkConfig, SinkKind};
use config::KafkaConfig;
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "kafka",
    keys: &["brokers", "topic", "key", "compression", "settings", "format", "idempotency_key"],
    concurrency: 4,
    // Long enough for librdkafka to find the new leader of a partition within one attempt.
    timeout: Duration::from_secs(30),
    read: |options, to| KafkaConfig::read(options, to).map(SinkConfig::new),
};
