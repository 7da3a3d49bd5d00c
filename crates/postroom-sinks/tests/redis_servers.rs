//! The Redis sink with several servers: a cluster, and a primary that Sentinels watch over.

use crate::destination::{refused, sink};
use postroom_core::{Message, Outcome, Sink};
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{OrSkip as _, Redis, RedisCluster, RedisSentinel, eventually, free_port};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Messages of as many streams, whose keys lie on all nodes of a cluster.
fn messages(name: &str) -> Vec<Message> {
    let of = |number: usize| Message {
        stream_id: format!("order-{number}"),
        ..message(&format!("{name}-{number}"))
    };
    (0..30).map(of).collect()
}

/// Delivers as a relay does: what is to be retried, again.
async fn deliver_until_done(sink: &dyn Sink, mut open: Vec<Message>) {
    eventually("everything to be delivered", SOON, async || {
        let outcomes = deliver_all(sink, &open).await;
        let mut outcomes = outcomes.into_iter();
        open.retain(|_| match outcomes.next().unwrap() {
            Outcome::Delivered => false,
            Outcome::Retry { .. } => true,
            other => panic!("a node that is gone concerns no message and no lane: {other:?}"),
        });
        open.is_empty().then_some(())
    })
    .await;
}

/// The event ids in a stream.
fn ids(entries: &Value) -> Vec<String> {
    let entries: Vec<(String, Vec<String>)> = serde_json::from_value(entries.clone()).unwrap();
    let id = |(_, fields): (String, Vec<String>)| {
        let place = fields.iter().position(|field| field == "idempotency-key").unwrap();
        fields[place + 1].clone()
    };
    entries.into_iter().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_54_with_the_seed_of_a_redis_cluster_killed_delivery_goes_on() {
    let cluster = RedisCluster::start().await.or_skip();
    let seed = &cluster.nodes()[0];
    let url = format!("redis://{}", seed.address());
    let sink = sink("redis:x", json!({"url": url, "cluster": true, "key": "orders:{stream}"}));
    assert_eq!(deliver_all(&*sink, &messages("before")).await, vec![Outcome::Delivered; 30]);
    for primary in &cluster.nodes()[..3] {
        primary.wait_replicated(&[]).await.unwrap();
    }
    seed.crash().await.unwrap();
    deliver_until_done(&*sink, messages("after")).await;
    for number in 0..30 {
        let key = format!("orders:order-{number}");
        let entries = cluster.read(&["XRANGE", &key, "-", "+"]).await.unwrap();
        let expected = [format!("before-{number}"), format!("after-{number}")];
        assert_eq!(ids(&entries), expected, "nothing is lost and nothing is there twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_of_several_that_are_named_leads_to_the_cluster() {
    let cluster = RedisCluster::start().await.or_skip();
    let (dead, alive) = (free_port().unwrap(), cluster.nodes()[1].address());
    let url = format!("redis://127.0.0.1:{dead},{alive}");
    let sink = sink("redis:x", json!({"url": url, "cluster": true, "key": "orders:{stream}"}));
    assert_eq!(deliver_all(&*sink, &messages("e")).await, vec![Outcome::Delivered; 30]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_by_sentinel_delivery_goes_on_at_the_new_primary() {
    let login = ["-a", "hunter2", "--no-auth-warning"];
    let password = ["--requirepass", "hunter2", "--masterauth", "hunter2"];
    let primary = Redis::private(&password).await.or_skip();
    let port = primary.address().port().to_string();
    let follow = ["--replicaof", "127.0.0.1", &port];
    let replica = Redis::private(&[&password[..], &follow[..]].concat()).await.unwrap();
    let sentinel = RedisSentinel::start("shop", primary.address(), Some("hunter2")).await.unwrap();
    let dead = free_port().unwrap();
    let url = format!("redis+sentinel://:hunter2@127.0.0.1:{dead},{}/shop/0", sentinel.address());
    let sink = sink("redis:x", json!({"url": url}));
    assert_eq!(deliver_all(&*sink, &[message("before")]).await, [Outcome::Delivered]);
    primary.wait_replicated(&login).await.unwrap();
    eventually("the Sentinel to know the replica", SOON, async || {
        let mut command = std::process::Command::new("redis-cli");
        command.args(["-p", &sentinel.address().port().to_string()]).args(login);
        let output = command.args(["SENTINEL", "replicas", "shop"]).output().unwrap();
        let replica = replica.address().port().to_string();
        String::from_utf8_lossy(&output.stdout).contains(&replica).then_some(())
    })
    .await;
    primary.crash().await.unwrap();
    deliver_until_done(&*sink, vec![message("after")]).await;
    let entries = replica.cli(&[&login[..], &["XRANGE", "x", "-", "+"]].concat()).await.unwrap();
    assert_eq!(ids(&entries), ["before", "after"]);
}

#[tokio::test]
async fn a_name_that_no_sentinel_monitors_pauses_the_lane() {
    let primary = Redis::private(&[]).await.or_skip();
    let sentinel = RedisSentinel::start("shop", primary.address(), None).await.unwrap();
    let url = |name: &str| format!("redis+sentinel://{}/{name}", sentinel.address());
    let wrong = sink("redis:x", json!({"url": url("other")}));
    let outcomes = deliver_all(&*wrong, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("monitors no primary `other`"), "{outcomes:?}");
    let right = sink("redis:x", json!({"url": url("shop")}));
    assert_eq!(deliver_all(&*right, &[message("e-1")]).await, [Outcome::Delivered]);
}
