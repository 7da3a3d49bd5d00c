//! The sink that sends each message as a mail over SMTP.
//!
//! * `config`: what an integration says.
//! * `letter`: the mail of one message.
//! * `connection`: connections to the server, and one mail over one of them.
//! * `progress`: which recipients already have a mail that others still wait for.
//! * `sink`: delivering.
//! * `classify`: what the server's replies mean.

mod classify;
mod config;
mod connection;
mod letter;
mod progress;
mod sink;

pub use config::EmailConfig;
pub use sink::EmailSink;

use crate::registry::{SinkConfig, SinkKind};
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "email",
    keys: &[
        "host",
        "port",
        "tls",
        "ca_file",
        "user",
        "password",
        "from",
        "to",
        "subject",
        "text",
        "html",
        "idempotency_key",
    ],
    concurrency: 4,
    timeout: Duration::from_secs(30),
    read: |options, to| EmailConfig::read(options, to).map(SinkConfig::new),
};
