//! The contract, as far as a file has what it asks for.

use crate::destination::sink;
use crate::whole::{NOWHERE, received};
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::Proxy;
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// A file of its own.
struct Lines {
    folder: tempfile::TempDir,
}

async fn start() -> Lines {
    Lines { folder: tempfile::tempdir().unwrap() }
}

impl Lines {
    fn path(&self) -> PathBuf {
        self.folder.path().join("out.jsonl")
    }
}

impl SinkHarness for Lines {
    fn name(&self) -> &'static str {
        "file"
    }

    fn server(&self) -> SocketAddr {
        NOWHERE
    }

    fn proxy(&self) -> Result<Proxy, &'static str> {
        Err("nothing stands between a sink and its file")
    }

    async fn sink(&self, _: SocketAddr) -> Arc<dyn Sink> {
        sink("file:out", json!({"path": self.path()}))
    }

    async fn received(&self) -> Vec<Received> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().map(|line| received(&serde_json::from_str(line).unwrap())).collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Ok(Message { payload: RawJson::trusted("{oops"), ..message("bad") })
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Err("a line may be as long as the disk has room for")
    }
}

postroom_testkit::sink_contract_tests!(start);
