//! Enqueueing inside the caller's own transaction, on every driver.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod laws;
mod outbox;
mod rows;
#[cfg(feature = "opentelemetry")]
mod trace;
