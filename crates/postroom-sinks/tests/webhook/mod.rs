//! The webhook against receivers on real sockets.

mod addresses;
mod content;
mod contract;
mod faults;
mod tls;
mod verified;

use crate::http_receiver::Receiver;
use crate::messages::{deliver_one, message};
use postroom_core::{Outcome, Sink};
use postroom_sinks::{Destination, SinkKind, WebhookConfig, WebhookSink};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The receivers of tests are on this machine.
const LOOPBACK: &str = "127.0.0.0/8";

fn sink(url: &str, timeout: Duration) -> WebhookSink {
    let config = WebhookConfig::new(url).unwrap().allow(LOOPBACK).unwrap();
    WebhookSink::new(config.timeout(timeout)).unwrap()
}

/// A sink as a configuration makes it: `options` and a receiver on this machine.
fn configured(url: &str, mut options: Value) -> Arc<dyn Sink> {
    options["url"] = json!(url);
    options["allow_addresses"] = json!([LOOPBACK]);
    let to = Destination { integration: "webhook:x", timeout: Duration::from_secs(5) };
    let Value::Object(options) = options else { panic!("options are a table") };
    SinkKind::of("webhook:x").unwrap().validate(options, &to).unwrap().build().unwrap()
}

async fn answered(status: &str, headers: &str) -> Outcome {
    let receiver = Receiver::answering(status, headers).await;
    deliver_one(&sink(&receiver.url(), Duration::from_secs(5)), message("e-1")).await
}

fn error_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Delivered => panic!("expected a failure"),
        Outcome::Retry { error, .. }
        | Outcome::Reject { error }
        | Outcome::Gone { error }
        | Outcome::Refuse { error } => error,
    }
}
