//! The sink that does nothing acknowledges everything.

use crate::page;
use crate::whole::NOWHERE;
use postroom_core::{Message, Outcome, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;

const NOTHING: &str = "it delivers nothing that could be read back";

struct Nothing;

async fn start() -> Nothing {
    Nothing
}

impl SinkHarness for Nothing {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn missing(&self) -> Option<&str> {
        Some(NOTHING)
    }

    fn server(&self) -> SocketAddr {
        NOWHERE
    }

    async fn sink(&self, _: SocketAddr) -> Arc<dyn Sink> {
        page::sink("noop", json!({}))
    }

    async fn received(&self) -> Vec<Received> {
        Vec::new()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Err(NOTHING)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Err(NOTHING)
    }
}

postroom_testkit::sink_contract_tests!(start);

#[tokio::test]
async fn everything_is_acknowledged() {
    let sink = start().await.sink(NOWHERE).await;
    sink.probe().await.unwrap();
    let batch: Vec<_> = (0..25).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 25]);
}
