//! What an operator's tools see of a relay over HTTP.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use postroom_core::{Intake as _, NewMessage, Outcome, Store, SystemClock};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_store::memory::MemoryStore;
use postroom_testkit::eventually;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(10);

struct Served {
    address: SocketAddr,
    relay: Arc<Relay>,
    client: reqwest::Client,
}

impl Served {
    async fn start(store: Arc<dyn Store>, sink: MemorySink) -> Self {
        let lanes = vec![Lane::new("memory:a", Arc::new(sink))];
        let relay = Arc::new(Relay::new(store, Settings::default(), lanes));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(postroom_server::serve(
            listener,
            Arc::clone(&relay) as _,
            std::future::pending(),
        ));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { address, relay, client }
    }

    fn run(&self) {
        let relay = Arc::clone(&self.relay);
        tokio::spawn(async move { relay.run(std::future::pending()).await });
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let response = self.client.get(url).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The metrics for an Accept header, and their content type.
    async fn metrics(&self, accept: &str) -> (String, String) {
        let url = format!("http://{}/metrics", self.address);
        let response = self.client.get(url).header("accept", accept).send().await.unwrap();
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        (content_type, response.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> (u16, serde_json::Value) {
        let (status, text) = self.get(path).await;
        (status, serde_json::from_str(&text).unwrap())
    }
}

fn memory_store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

#[tokio::test]
async fn a_relay_is_ready_once_its_database_has_answered() {
    let served = Served::start(memory_store(), MemorySink::new()).await;
    let (status, health) = served.json("/readyz").await;
    assert_eq!((status, health["ready"].as_bool()), (503, Some(false)));
    assert_eq!(served.get("/healthz").await.0, 200, "the process lives all the same");
    served.run();
    let health = eventually("readiness", SOON, async || {
        let (status, health) = served.json("/readyz").await;
        (status == 200).then_some(health)
    })
    .await;
    assert_eq!(health["database"], "ok");
    assert_eq!(health["lanes"][0]["integration"], "memory:a");
    assert_eq!(health["lanes"][0]["state"], "running");
}

#[tokio::test]
async fn readiness_says_why_the_database_cannot_be_used() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://app:hunter2@{nobody}/shop");
    let store = postroom_store::open(&url, &OpenOptions::default()).await.unwrap();
    let served = Served::start(store, MemorySink::new()).await;
    served.run();
    let reason = eventually("a reason", SOON, async || {
        let (status, health) = served.json("/readyz").await;
        assert_eq!(status, 503);
        let reason = health["database"].as_str().unwrap().to_owned();
        reason.contains("refused").then_some(reason)
    })
    .await;
    assert!(!reason.contains("hunter2"), "{reason}");
}

#[tokio::test]
async fn a_paused_lane_shows_its_reason() {
    let store = memory_store();
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::refuse("the key has expired"));
    store.enqueue(&NewMessage::new("memory:a", "x")).await.unwrap();
    let served = Served::start(store, sink).await;
    served.run();
    let lane = eventually("a paused lane", SOON, async || {
        let lane = served.json("/readyz").await.1["lanes"][0].clone();
        (lane["state"] == "paused").then_some(lane)
    })
    .await;
    assert!(lane["error"].as_str().unwrap().contains("the key has expired"));
}

/// A relay that has delivered a message.
async fn delivered() -> Served {
    let store = memory_store();
    let sink = MemorySink::new();
    store.enqueue(&NewMessage::new("memory:a", "x")).await.unwrap();
    let served = Served::start(store, sink.clone()).await;
    served.run();
    sink.wait_for(1).await;
    served
}

#[tokio::test]
async fn metrics_count_what_was_delivered() {
    let served = delivered().await;
    let text = eventually("a delivery in the metrics", SOON, async || {
        let (status, text) = served.get("/metrics").await;
        assert_eq!(status, 200);
        text.lines().any(|line| line.contains("memory:a") && line.ends_with(" 1")).then_some(text)
    })
    .await;
    assert!(text.contains("# TYPE outbox_sent_total counter\n"), "{text}");
    assert!(!text.contains("# EOF"));
}

/// Every value is described in both forms, under the name that the form gives it.
#[tokio::test]
async fn metrics_come_in_the_form_that_is_asked_for() {
    let served = delivered().await;
    const OPEN: &str = "application/openmetrics-text;version=1.0.0";
    for (accept, content_type, counter) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", "outbox_sent_total"),
        (
            "text/plain;version=0.0.4",
            "text/plain; version=0.0.4; charset=utf-8",
            "outbox_sent_total",
        ),
        (OPEN, "application/openmetrics-text; version=1.0.0; charset=utf-8", "outbox_sent"),
    ] {
        let text = eventually("a delivery in the metrics", SOON, async || {
            let (served, text) = served.metrics(accept).await;
            assert_eq!(served, content_type);
            text.contains("outbox_sent_total{integration=\"memory:a\"} 1").then_some(text)
        })
        .await;
        assert!(text.contains(&format!("# HELP {counter} Messages SENT")), "{text}");
        assert!(text.contains(&format!("# TYPE {counter} counter\n")), "{text}");
        assert_eq!(text.ends_with("# EOF\n"), accept == OPEN);
    }
}

#[tokio::test]
async fn other_paths_are_not_found() {
    let served = Served::start(memory_store(), MemorySink::new()).await;
    assert_eq!(served.get("/").await.0, 404);
}
