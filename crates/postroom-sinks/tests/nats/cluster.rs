//! Three servers that keep a stream, of which its leader is killed.

use super::client::Client;
use crate::destination::sink;
use crate::redelivery::{EVENTS, outlast};
use postroom_core::Outcome;
use postroom_testkit::{NatsCluster, OrSkip as _, Proxy, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_54_a_nats_leader_is_killed_and_delivery_goes_on() {
    let cluster = NatsCluster::start().await.or_skip();
    let leader = make_stream(&cluster).await;
    let survivor = cluster.address((leader + 1) % NatsCluster::NODES);
    // Through the very server that goes, by a name that leads to another one then.
    let way = Proxy::start(cluster.address(leader));
    let sink = sink("nats:orders", json!({"url": format!("nats://{}", way.address())}));
    let kill = async {
        cluster.kill(leader).await.unwrap();
        way.lead_to(survivor);
    };
    outlast(&*sink, kill, may_follow).await;
    eventually("every event to be there", SOON, async || {
        let read = move || Client::connect(survivor).read_stream("orders");
        let read = tokio::task::spawn_blocking(read).await.unwrap();
        let arrived: BTreeSet<_> = read.into_iter().map(|one| one.key).collect();
        (arrived.len() == EVENTS).then_some(())
    })
    .await;
}

/// While the servers choose a leader, nobody listens on the subject, which the sink takes for a
/// stream that is missing: the lane pauses, and tries again.
fn may_follow(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry { .. } | Outcome::Refuse { .. })
}

/// Makes a stream that all servers keep, as soon as they have found each other, and returns its
/// leader.
async fn make_stream(cluster: &NatsCluster) -> usize {
    let address = cluster.address(0);
    let config = json!({
        "name": "orders", "subjects": ["orders"], "num_replicas": 3, "allow_direct": true,
    });
    eventually("a stream with a leader", SOON, async || {
        ask(address, "$JS.API.STREAM.CREATE.orders", config.clone()).await;
        let info = ask(address, "$JS.API.STREAM.INFO.orders", json!({})).await;
        cluster.node(info["cluster"]["leader"].as_str()?)
    })
    .await
}

async fn ask(address: SocketAddr, subject: &'static str, body: Value) -> Value {
    let ask = move || Client::connect(address).ask(subject, &body).body;
    let answer = tokio::task::spawn_blocking(ask).await.unwrap();
    serde_json::from_str(&answer).unwrap_or_default()
}
