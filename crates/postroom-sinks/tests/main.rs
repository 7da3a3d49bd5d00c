//! The sinks as a relay uses them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[cfg(feature = "aws")]
mod aws;
mod dedup;
mod destination;
#[cfg(feature = "email")]
mod email;
mod file;
#[cfg(any(feature = "aws", feature = "slack", feature = "sms", feature = "webhook"))]
mod http_receiver;
#[cfg(feature = "kafka")]
mod kafka;
mod memory;
mod messages;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod noop;
mod page;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "gcp")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod redelivery;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_servers;
#[cfg(feature = "slack")]
mod slack;
#[cfg(feature = "sms")]
mod sms;
#[cfg(feature = "aws")]
mod sns;
#[cfg(feature = "aws")]
mod sqs;
mod stdout;
#[cfg(any(
    feature = "mqtt",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "webhook"
))]
mod verifiers;
#[cfg(feature = "webhook")]
mod webhook;
mod whole;
