//! The contract, as far as memory has what it asks for.

use crate::whole::{NOWHERE, received};
use postroom_core::{Message, Sink};
use postroom_sinks::MemorySink;
use postroom_testkit::Proxy;
use postroom_testkit::sink_contract::{Received, SinkHarness};
use std::net::SocketAddr;
use std::sync::Arc;

struct Record(MemorySink);

async fn start() -> Record {
    Record(MemorySink::new())
}

impl SinkHarness for Record {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn server(&self) -> SocketAddr {
        NOWHERE
    }

    fn proxy(&self) -> Result<Proxy, &'static str> {
        Err("nothing stands between a sink and its memory")
    }

    async fn sink(&self, _: SocketAddr) -> Arc<dyn Sink> {
        Arc::new(self.0.clone())
    }

    async fn received(&self) -> Vec<Received> {
        let kept = self.0.delivered().into_iter();
        kept.map(|message| received(&serde_json::to_value(message).unwrap())).collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Err("it keeps whatever it is given")
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Err("it keeps whatever it is given")
    }
}

postroom_testkit::sink_contract_tests!(start);
