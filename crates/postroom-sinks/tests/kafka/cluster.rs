//! Three brokers, of which the one is killed that everything depends on.

use super::broker::is_retry;
use super::header;
use crate::destination::sink;
use crate::redelivery::{EVENTS, outlast};
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{KafkaCluster, eventually, skip};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_54_a_kafka_leader_is_killed_and_delivery_goes_on() {
    let cluster = match KafkaCluster::start().await {
        Ok(cluster) => cluster,
        Err(error) => {
            let test = "kafka: fault_54_a_kafka_leader_is_killed_and_delivery_goes_on";
            return skip(test, &format!("{error:#}"));
        }
    };
    cluster.create_topic("orders").await.unwrap();
    let sink = sink("kafka:orders", json!({"brokers": cluster.brokers()}));
    eventually("a topic that every broker knows", Duration::from_secs(60), async || {
        let outcomes = deliver_all(&*sink, &[message("e-0")]).await;
        (outcomes == [Outcome::Delivered]).then_some(())
    })
    .await;
    let leader = cluster.leader("orders").await.unwrap();
    outlast(&*sink, async { cluster.kill(leader).await.unwrap() }, is_retry).await;
    assert_ne!(cluster.leader("orders").await.unwrap(), leader, "another broker leads");
    let records = cluster.read("orders").await.unwrap();
    let arrived: BTreeSet<_> =
        records.iter().filter_map(|record| header(record, "idempotency-key")).collect();
    assert_eq!(arrived.len(), EVENTS, "every event is there");
}
