//! How Redis is reached: ACL, TLS, clusters; and what is said when it is not.

use crate::recording::{quick, start};
use crate::servers::{LONG, config, job, name, queue};
use postroom_bullmq::{Added, JobState, Queue, QueueError, Redis, RedisConfig};
use postroom_testkit::{Authority, OrSkip as _, RedisCluster, eventually};
use serde_json::json;

/// One job goes through a queue and a worker.
async fn goes_through(config: &RedisConfig) {
    let queue = Queue::open(&Redis::new(config).unwrap(), &name()).unwrap();
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    assert_eq!(queue.add(&[job("a", "x", json!({}))]).await.unwrap(), [Added::New]);
    worker.processor.wait_started(1).await;
    eventually("the job to be gone", LONG, async || {
        (queue.states(&["a".to_owned()]).await.unwrap() == [JobState::Gone]).then_some(())
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_away() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let queue = queue(address);
    for error in [
        queue.add(&[job("a", "x", json!({}))]).await.unwrap_err(),
        queue.counts().await.unwrap_err(),
        queue.redis().probe().await.unwrap_err(),
    ] {
        assert!(error.is_away(), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    let mut worker = start(&queue, quick());
    worker.wait_away().await;
    worker.stop().await;
}

#[tokio::test]
async fn an_acl_user_with_the_rights_on_its_prefix_is_enough() {
    let server = postroom_testkit::Redis::private(&[]).await.unwrap();
    let rules = ["ACL", "SETUSER", "ann", "on", ">p@ss", "~jobs:*", "+@all", "-@admin"];
    server.cli(&[&rules[..], &["-@dangerous", "+info"]].concat()).await.unwrap();
    let with = |login: &str, prefix: &str| RedisConfig {
        url: format!("redis://{login}@{}", server.address()),
        prefix: Some(prefix.to_owned()),
        ..RedisConfig::default()
    };
    goes_through(&with("ann:p%40ss", "jobs")).await;
    for (login, prefix) in [("ann:wrong", "jobs"), ("nobody:x", "jobs"), ("ann:p%40ss", "others")] {
        let queue = Queue::open(&Redis::new(&with(login, prefix)).unwrap(), "q").unwrap();
        let error = queue.add(&[job("a", "x", json!({}))]).await.unwrap_err();
        assert!(matches!(error, QueueError::Misconfigured { .. }), "{login} {prefix}: {error}");
        assert!(!error.to_string().contains("p@ss") && !error.to_string().contains("wrong"));
    }
}

#[tokio::test]
async fn tls_is_verified_against_the_given_authority() {
    let authority = Authority::new();
    let files = authority.issue(&["localhost"], "nobody");
    let (_server, port) = postroom_testkit::Redis::with_tls(&files).await.unwrap();
    let with = |ca_file| RedisConfig {
        url: format!("rediss://localhost:{port}"),
        ca_file,
        ..RedisConfig::default()
    };
    goes_through(&with(Some(authority.file()))).await;
    let other = Authority::new();
    for untrusted in [None, Some(other.file())] {
        let redis = Redis::new(&with(untrusted)).unwrap();
        let error = redis.probe().await.unwrap_err();
        assert!(matches!(error, QueueError::Misconfigured { .. }), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

/// A cluster of one node.
async fn cluster_of_one() -> postroom_testkit::Redis {
    let server = postroom_testkit::Redis::private(&["--cluster-enabled", "yes"]).await.unwrap();
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("the cluster to be up", LONG, async || {
        let info = server.cli(&["CLUSTER", "INFO"]).await.unwrap();
        info.to_string().contains("cluster_state:ok").then_some(())
    })
    .await;
    server
}

#[tokio::test]
async fn in_a_cluster_the_keys_of_a_queue_share_a_slot() {
    let server = cluster_of_one().await;
    let cluster = RedisConfig { cluster: true, ..config(server.address()) };
    goes_through(&cluster).await;
    let keys = server.cli(&["KEYS", "*"]).await.unwrap().to_string();
    assert!(keys.contains("{bull}:"), "{keys}");
    let spread = RedisConfig { prefix: Some("bull".to_owned()), ..cluster };
    let redis = Redis::new(&spread).unwrap();
    let error = Queue::open(&redis, "q").unwrap_err();
    assert!(error.to_string().contains("{bull}"), "{error}");
    assert!(Queue::open(&redis, "{q}").is_ok());
}

#[tokio::test]
async fn a_cluster_is_found_by_the_nodes_that_live() {
    let nodes = RedisCluster::start().await.or_skip();
    let nodes = nodes.nodes();
    // The one that has the queue: its replica must stand in, and another node leads to that.
    let slot = nodes[0].cli(&["CLUSTER", "KEYSLOT", "bull"]).await.unwrap();
    let serving = slot.as_u64().unwrap() as usize / 5461;
    let (serving, other) = (&nodes[serving], &nodes[(serving + 1) % 3]);
    let cluster = RedisConfig {
        url: format!("redis://{},{}", serving.address(), other.address()),
        cluster: true,
        ..RedisConfig::default()
    };
    let queue = Queue::open(&Redis::new(&cluster).unwrap(), &name()).unwrap();
    assert_eq!(queue.add(&[job("a", "x", json!({}))]).await.unwrap(), [Added::New]);
    let worker = start(&queue, quick());
    worker.processor.wait_started(1).await;
    serving.wait_replicated(&[]).await.unwrap();
    serving.crash().await.unwrap();
    eventually("the replica to stand in", LONG, async || {
        queue.add(&[job("b", "x", json!({}))]).await.ok()
    })
    .await;
    worker.processor.wait_started(2).await;
    worker.stop().await;
    goes_through(&cluster).await;
}

#[tokio::test]
async fn a_node_that_is_frozen_keeps_nobody_from_the_cluster() {
    let server = cluster_of_one().await;
    // Connections to it are made, and nothing is ever answered.
    let frozen = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    goes_through(&RedisConfig {
        url: format!("redis://{},{}", frozen.local_addr().unwrap(), server.address()),
        cluster: true,
        ..RedisConfig::default()
    })
    .await;
}
