//! Where Postroom delivers: one module per sink, one registry.
//!
//! A small sink is one file: its configuration, the sink, how it classifies what came back. A
//! larger one is a folder with a file for each of these, `classify` among them, and more where
//! its protocol needs it; `sqs` and `sns` share what is in `aws`. What several sinks need stands
//! beside them, such as `wrapping`, which makes a message up for its way. A configuration names a
//! sink by the part of the integration before `:`; [`registry`] is the one list of them.
//! [`MemorySink`] is for tests, and [`DedupSink`] wraps any other sink.

// What sinks share is used in full only by a build that has them all.
#![cfg_attr(
    not(all(
        feature = "aws",
        feature = "email",
        feature = "gcp",
        feature = "mqtt",
        feature = "nats",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis",
        feature = "slack",
        feature = "sms",
        feature = "webhook"
    )),
    allow(dead_code, unused_imports)
)]

#[cfg(any(feature = "slack", feature = "sms"))]
mod api;
#[cfg(feature = "aws")]
mod aws;
mod batch;
#[cfg(any(feature = "aws", feature = "gcp"))]
mod cause;
mod connections;
mod dedup;
#[cfg(feature = "email")]
mod email;
mod endpoint;
mod endpoints;
mod file;
#[cfg(any(feature = "email", feature = "slack", feature = "sms"))]
mod jinja;
mod json_line;
#[cfg(feature = "kafka")]
mod kafka;
mod memory;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod noop;
mod options;
#[cfg(test)]
mod outcome_class;
#[cfg(any(feature = "email", feature = "postgres"))]
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "gcp")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
pub mod registry;
#[cfg(any(feature = "slack", feature = "sms", feature = "webhook"))]
mod retry_after;
#[cfg(feature = "slack")]
mod slack;
#[cfg(feature = "sms")]
mod sms;
#[cfg(feature = "aws")]
mod sns;
#[cfg(feature = "aws")]
mod sqs;
mod stdout;
mod template;
mod tls;
#[cfg(feature = "webhook")]
mod webhook;
mod wrapping;

pub use dedup::DedupSink;
#[cfg(feature = "email")]
pub use email::{EmailConfig, EmailSink};
pub use file::{FileConfig, FileSink};
pub use memory::MemorySink;
pub use noop::NoopSink;
pub use options::{OptionFault, nearest};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresConfig, PostgresSink};
pub use registry::{BuildError, Destination, SinkConfig, SinkKind};
#[cfg(feature = "slack")]
pub use slack::{SlackConfig, SlackSink};
#[cfg(feature = "sms")]
pub use sms::{SmsConfig, SmsSink};
pub use stdout::StdoutSink;
#[cfg(feature = "webhook")]
pub use webhook::{WebhookConfig, WebhookSink};
