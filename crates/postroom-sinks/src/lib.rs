//! Where Postroom delivers: one file per sink, one registry.
//!
//! Every sink's file has the same order: its configuration, the sink, how it delivers, how it
//! classifies what came back, its tests. A configuration names a sink by the part of the
//! integration before `:`; [`registry`] is the one list of them. [`MemorySink`] is for tests, and
//! [`DedupSink`] wraps any other sink.

#![cfg_attr(
    not(all(feature = "mqtt", feature = "nats", feature = "rabbitmq", feature = "redis")),
    allow(dead_code, reason = "what sinks share is needed by some of them only")
)]

mod batch;
mod connections;
mod dedup;
mod endpoint;
mod file;
mod json_line;
mod memory;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod noop;
mod options;
#[cfg(test)]
mod outcome_class;
mod parcel;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
pub mod registry;
mod retry_after;
mod stdout;
mod template;
mod tls;
mod webhook;

pub use dedup::DedupSink;
pub use file::{FileConfig, FileSink};
pub use memory::MemorySink;
pub use noop::NoopSink;
pub use options::{OptionFault, nearest};
pub use registry::{BuildError, Destination, SinkConfig, SinkKind};
pub use stdout::StdoutSink;
pub use webhook::{WebhookConfig, WebhookSink};
