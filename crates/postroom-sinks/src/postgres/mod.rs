//! The sink that inserts each message into a table of another PostgreSQL database.
//!
//! * `config`: what an integration says.
//! * `statement`: the INSERT, and the rows it is given.
//! * `connection`: connections, and who the server must prove to be.
//! * `sink`: delivering.
//! * `classify`: what PostgreSQL's errors mean.

mod classify;
mod config;
mod connection;
mod sink;
mod statement;

pub use config::PostgresConfig;
pub use sink::PostgresSink;

use crate::registry::{SinkConfig, SinkKind};
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "postgres",
    keys: &["url", "ca_file", "table", "columns", "format", "idempotency_key"],
    concurrency: 2,
    timeout: Duration::from_secs(30),
    read: |options, to| PostgresConfig::read(options, to).map(SinkConfig::new),
};
