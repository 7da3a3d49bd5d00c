//! The sink that sends each message as an SMS through Twilio, or a service that speaks like it.
//!
//! * `config`: what an integration says.
//! * `sink`: delivering.
//! * `classify`: what the answers mean.

mod classify;
mod config;
mod sink;

pub use config::SmsConfig;
pub use sink::SmsSink;

use crate::registry::{SinkConfig, SinkKind};
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "sms",
    keys: &["url", "account_sid", "auth_token", "from", "messaging_service_sid", "to", "text"],
    concurrency: 4,
    timeout: Duration::from_secs(15),
    read: |options, to| SmsConfig::read(options, to).map(SinkConfig::new),
};
