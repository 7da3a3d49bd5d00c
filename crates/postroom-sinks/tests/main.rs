//! The sinks as a relay uses them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod dedup;
#[cfg(feature = "email")]
mod destination;
#[cfg(feature = "email")]
mod email;
mod file;
#[cfg(feature = "webhook")]
mod http_receiver;
mod memory;
mod messages;
#[cfg(feature = "webhook")]
mod webhook;
