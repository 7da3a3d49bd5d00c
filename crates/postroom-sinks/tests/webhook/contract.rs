//! The sink contract, with an HTTP server of another library as the receiver.

use super::LOOPBACK;
use postroom_core::{Message, RawJson, Sink};
use postroom_sinks::{WebhookConfig, WebhookSink};
use postroom_testkit::Receiver;
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const BODY_BYTES_MAX: usize = 100_000;

struct Harness {
    receiver: Receiver,
}

async fn start() -> Harness {
    let receiver = Receiver::start();
    receiver.limit(BODY_BYTES_MAX);
    Harness { receiver }
}

impl SinkHarness for Harness {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn server(&self) -> SocketAddr {
        self.receiver.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        let config = WebhookConfig::new(&format!("http://{address}/hook")).unwrap();
        let config = config.allow(LOOPBACK).unwrap().timeout(Duration::from_secs(2));
        Arc::new(WebhookSink::new(config).unwrap())
    }

    async fn received(&self) -> Vec<Received> {
        let requests = self.receiver.requests().into_iter();
        requests
            .filter(|request| request.method.as_str() == "POST")
            .map(|request| Received {
                key: request.header("webhook-id").unwrap().to_owned(),
                body: String::from_utf8(request.body.to_vec()).unwrap(),
                attributes: request
                    .headers
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                    .collect(),
            })
            .collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("bad");
        bad.headers = Some(RawJson::trusted(r#"{"transfer-encoding":"chunked"}"#));
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let mut large = message("large");
        large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(BODY_BYTES_MAX)));
        Ok(large)
    }
}

postroom_testkit::sink_contract_tests!(start);
