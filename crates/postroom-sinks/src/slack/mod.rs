//! The sink that posts each message to Slack.
//!
//! * `config`: what an integration says.
//! * `blocks`: layouts with templates in them.
//! * `sink`: delivering.
//! * `classify`: what Slack's answers mean.

mod blocks;
mod classify;
mod config;
mod sink;

pub use config::SlackConfig;
pub use sink::SlackSink;

use crate::registry::{SinkConfig, SinkKind};
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "slack",
    keys: &["url", "token", "channel", "api_url", "text", "blocks"],
    // Slack takes about one message per second and channel.
    concurrency: 1,
    timeout: Duration::from_secs(10),
    read: |options, to| SlackConfig::read(options, to).map(SinkConfig::new),
};
