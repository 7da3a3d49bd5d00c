//! The sink contract.

use super::{Mailbox, configured};
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;

async fn start() -> Mailbox {
    Mailbox::open().await
}

impl SinkHarness for Mailbox {
    fn name(&self) -> &'static str {
        "email"
    }

    fn server(&self) -> SocketAddr {
        self.server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        let text = "{{ payload|tojson }}";
        configured(address, json!({"to": self.address("ann"), "text": text}))
    }

    async fn received(&self) -> Vec<Received> {
        let mails = self.mails().into_iter();
        mails
            .map(|mail| Received {
                key: mail.headers["idempotency-key"].clone(),
                body: mail.text.unwrap(),
                attributes: mail.headers,
            })
            .collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("bad");
        bad.headers = Some(RawJson::trusted(r#"{"bcc":"eve@evil.test"}"#));
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let mut large = message("large");
        large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(300_000)));
        Ok(large)
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

postroom_testkit::sink_contract_tests!(start);
