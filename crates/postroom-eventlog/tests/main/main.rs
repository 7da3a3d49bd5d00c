//! The event log as those meet it who use it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod conformance;
mod log;
mod persistent;
mod rust_client;
mod served;
mod server_batches;
mod server_connections;
mod server_fuzz;
mod server_memory;
