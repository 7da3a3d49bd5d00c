//! The sink that sends each message to a URL as an HTTP POST.
//!
//! * `config`: what an integration says, and what it may not say.
//! * `sink`: the client, and one request per message.
//! * `request`: the headers of a request.
//! * `signature`: Standard Webhooks.
//! * `addresses`, `resolver`: where a request may go.
//! * `tls`: certificates for both sides.
//! * `classify`: what an answer means.

mod addresses;
mod classify;
mod config;
mod request;
mod resolver;
mod signature;
mod sink;
mod tls;

pub use config::WebhookConfig;
pub use sink::WebhookSink;

use crate::registry::{SinkConfig, SinkKind};

pub(crate) const KIND: SinkKind = SinkKind {
    name: "webhook",
    keys: &[
        "url",
        "headers",
        "auth",
        "secrets",
        "tls",
        "allow_addresses",
        "format",
        "idempotency_key",
        "keep_response",
    ],
    concurrency: 16,
    timeout: WebhookConfig::DEFAULT_TIMEOUT,
    read: |options, to| WebhookConfig::read(options, to.timeout).map(SinkConfig::new),
};
