//! The email sink against aiosmtpd, read back by Python's own parser of mails.

mod content;
mod contract;
mod replies;
mod tls;

use crate::destination::sink;
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::sink_contract::message;
use postroom_testkit::{Mail, Smtp};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use uuid::Uuid;

/// A mailbox of its own on the shared server.
struct Mailbox {
    server: &'static Smtp,
    domain: String,
}

impl Mailbox {
    async fn open() -> Self {
        Self { server: Smtp::shared().await, domain: format!("{}.test", Uuid::now_v7()) }
    }

    fn address(&self, name: &str) -> String {
        format!("{name}@{}", self.domain)
    }

    fn sink(&self, options: Value) -> Arc<dyn Sink> {
        let defaults = json!({"to": self.address("ann")});
        configured(self.server.address(), merged(defaults, &options))
    }

    fn mails(&self) -> Vec<Mail> {
        self.server.mails(&self.domain)
    }
}

/// A sink for a server at `address` without TLS, unless `options` say otherwise.
fn configured(address: SocketAddr, options: Value) -> Arc<dyn Sink> {
    let defaults = json!({
        "host": address.ip().to_string(), "port": address.port(), "tls": "none",
        "from": "Shop <shop@shop.test>",
    });
    sink("email:receipts", merged(defaults, &options))
}

fn merged(mut all: Value, options: &Value) -> Value {
    for (key, value) in options.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn with_payload(event_id: &str, payload: Value) -> Message {
    Message { payload: RawJson::trusted(payload.to_string()), ..message(event_id) }
}
