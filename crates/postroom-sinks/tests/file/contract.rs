//! The contract, as far as a file has what it asks for.

use crate::destination::sink;
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::Proxy;
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Which of the line's members are which of the documented attributes.
const NAMES: [(&str, &str); 11] = [
    ("event_id", "postroom-event-id"),
    ("event_type", "postroom-event-type"),
    ("id", "postroom-message-id"),
    ("stream_id", "postroom-stream"),
    ("tenant_id", "postroom-tenant"),
    ("user_id", "postroom-user"),
    ("correlation_id", "postroom-correlation"),
    ("causation_id", "postroom-causation"),
    ("source", "postroom-source"),
    ("schema_version", "postroom-schema-version"),
    ("occurred_at", "postroom-occurred-at"),
];

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

    /// There is none.
    fn server(&self) -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
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

    fn keeps_connections(&self) -> Result<(), &'static str> {
        Err("a file has no connections")
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Err("a file has no connections")
    }
}

fn received(line: &Value) -> Received {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let named = NAMES.iter().map(|(member, name)| ((*name).to_owned(), text(&line[member])));
    let stored = line["headers"].as_object().unwrap().iter();
    let stored = stored.map(|(name, value)| (name.clone(), text(value)));
    // A line counts the attempts that failed.
    let attempt = (line["attempts"].as_u64().unwrap() + 1).to_string();
    let attempt = ("postroom-attempt".to_owned(), attempt);
    Received {
        key: text(&line["event_id"]),
        body: line["payload"].to_string(),
        attributes: named.chain(stored).chain([attempt]).collect(),
    }
}

postroom_testkit::sink_contract_tests!(start);
