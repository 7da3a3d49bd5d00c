//! Brokers that are killed, topics that are not there, and messages that are refused.

use super::{Topic, large, topic};
use crate::destination::{refused, rejected, sink};
use crate::redelivery::deliver_with_retry;
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{SinkHarness as _, deliver_all, message};
use postroom_testkit::{Kafka, eventually, skip};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(60);

/// A broker's trouble is a retry.
pub(super) fn is_retry(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_in_the_middle_loses_nothing_that_was_acknowledged() {
    let test = "a_broker_that_is_killed_in_the_middle_loses_nothing_that_was_acknowledged";
    if let Err(reason) = Kafka::shared().await {
        return skip(&format!("kafka: {test}"), reason);
    }
    let kafka: &'static Kafka = match Kafka::private().await {
        // Ends with the process, as the shared one does.
        Ok(kafka) => Box::leak(Box::new(kafka)),
        Err(error) => return skip(&format!("kafka: {test}"), &format!("{error:#}")),
    };
    let topic = Topic::on(kafka, 3).await;
    let sink = topic.with(json!({}));
    let batches: Vec<Vec<_>> = (0..20)
        .map(|batch| (0..50).map(|n| message(&format!("e-{batch}-{n}"))).collect())
        .collect();
    assert_eq!(deliver_all(&*sink, &batches[0]).await, vec![Outcome::Delivered; 50]);
    let delivering = async {
        for batch in &batches[1..] {
            deliver_with_retry(&*sink, batch, is_retry).await;
        }
    };
    let killing = async {
        eventually("some to be under way", SOON, async || {
            let read = kafka.read(&topic.name).await.unwrap();
            (read.len() > 50).then_some(())
        })
        .await;
        let kill = || {
            kafka.kill().unwrap();
            kafka.restart().unwrap();
        };
        tokio::task::spawn_blocking(kill).await.unwrap();
    };
    tokio::join!(delivering, killing);
    let arrived: BTreeSet<_> = topic.received().await.into_iter().map(|one| one.key).collect();
    assert_eq!(arrived.len(), 1000, "every event is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_not_there_pauses_the_lane_until_it_is() {
    let Some(topic) = topic("a_topic_that_is_not_there_pauses_the_lane_until_it_is").await else {
        return;
    };
    let name = format!("later-{}", Uuid::now_v7().simple());
    let sink = sink(&format!("kafka:{name}"), json!({"brokers": topic.kafka().brokers()}));
    let error = sink.probe().await.unwrap_err().to_string();
    assert!(error.contains("create the topic"), "{error}");
    let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
    // Otherwise the attempt would have come to its end, which is a retry.
    assert!(refused(&outcomes[0]).contains("create the topic"), "{outcomes:?}");
    refused(&outcomes[1]);
    topic.kafka().create_topic(&name, 1, &[]).await.unwrap();
    // The broker may take a moment to know its own topic.
    eventually("the topic to be found", SOON, async || {
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        (outcomes == [Outcome::Delivered]).then_some(())
    })
    .await;
    sink.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_too_large_for_the_topic_takes_no_other_with_it() {
    let test = "one_message_too_large_for_the_topic_takes_no_other_with_it";
    let Some(topic) = topic(test).await else { return };
    let sink = topic.with(json!({"settings": {"linger.ms": 50}}));
    let mut batch: Vec<_> = (0..40).map(|n| message(&format!("e-{n}"))).collect();
    batch[7] = large("e-7", 150_000);
    // Small enough each, and too large together.
    for (n, message) in batch.iter_mut().enumerate().skip(20) {
        *message = large(&format!("e-{n}"), 20_000);
    }
    let outcomes = deliver_all(&*sink, &batch).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        match n {
            7 => assert!(rejected(outcome).contains("max.message.bytes"), "{outcome:?}"),
            _ => assert_eq!(*outcome, Outcome::Delivered, "{n}"),
        }
    }
    assert_eq!(topic.records().await.len(), 39, "and each is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_full_holds_the_batch_back_and_not_the_runtime() {
    let test = "a_queue_that_is_full_holds_the_batch_back_and_not_the_runtime";
    let Some(topic) = topic(test).await else { return };
    let sink = topic.with(json!({"settings": {"queue.buffering.max.messages": 10}}));
    let batch: Vec<_> = (0..500).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 500]);
    let keys: Vec<_> = topic.received().await.into_iter().map(|one| one.key).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected, "in order");
    // With nobody to take them, the batch is settled in time all the same.
    let sink = topic.with(json!({"brokers": "127.0.0.1:1"}));
    let begun = Instant::now();
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{outcomes:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
