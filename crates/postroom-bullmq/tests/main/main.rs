//! Tests of the BullMQ transport, on a real Redis and with the real BullMQ of Node.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod adding;
mod events;
mod finishing;
mod interop;
mod node;
mod python;
mod reaching;
mod recording;
mod servers;
mod stopping;
mod surviving;
mod transport;
mod worker_process;
