//! The sinks as a relay uses them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod dedup;
#[cfg(any(feature = "email", feature = "postgres", feature = "slack", feature = "sms"))]
mod destination;
#[cfg(feature = "email")]
mod email;
mod file;
#[cfg(any(feature = "slack", feature = "sms", feature = "webhook"))]
mod http_receiver;
mod memory;
mod messages;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "slack")]
mod slack;
#[cfg(feature = "sms")]
mod sms;
#[cfg(feature = "webhook")]
mod webhook;
