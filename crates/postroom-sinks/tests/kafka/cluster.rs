//! Three brokers, of which the one is killed that everything depends on.

use super::broker::{SOON, insist};
use super::header;
use crate::destination::sink;
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{KafkaCluster, eventually, skip};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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
    let batches: Vec<Vec<_>> = (0..40)
        .map(|batch| (0..25).map(|n| message(&format!("e-{batch}-{n}"))).collect())
        .collect();
    eventually("a topic that every broker knows", SOON, async || {
        let outcomes = deliver_all(&*sink, &batches[0]).await;
        (outcomes == vec![Outcome::Delivered; 25]).then_some(())
    })
    .await;
    let leader = cluster.leader("orders").await.unwrap();
    let mut longest = Duration::ZERO;
    for (number, batch) in batches.iter().enumerate().skip(1) {
        let begun = Instant::now();
        if number == 10 {
            // While the batch is on its way.
            let (killed, ()) = tokio::join!(cluster.kill(leader), insist(&*sink, batch));
            killed.unwrap();
        } else {
            insist(&*sink, batch).await;
        }
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < Duration::from_secs(40), "it goes on within seconds: {longest:?}");
    assert_ne!(cluster.leader("orders").await.unwrap(), leader, "another broker leads");
    let records = cluster.read("orders").await.unwrap();
    let arrived: BTreeSet<_> =
        records.iter().filter_map(|record| header(record, "idempotency-key")).collect();
    assert_eq!(arrived.len(), 1_000, "every event is there");
}
