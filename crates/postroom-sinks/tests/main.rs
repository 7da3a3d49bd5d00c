//! The sinks as a relay uses them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod dedup;
#[cfg(feature = "nats")]
mod destination;
mod file;
mod http_receiver;
mod memory;
mod messages;
#[cfg(feature = "nats")]
mod nats;
mod webhook;
