//! The sinks as a relay uses them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod dedup;
mod destination;
mod file;
mod http_receiver;
mod memory;
mod messages;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
mod webhook;
