//! Codes that a broker does not give on demand, from librdkafka's mock cluster.

use crate::destination::{refused, rejected, sink};
use postroom_core::{Outcome, Sink};
use postroom_testkit::eventually;
use postroom_testkit::sink_contract::{deliver_all, message};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey as Request, RDKafkaRespErr as Answer};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> (Cluster, Arc<dyn Sink>) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("payments", 1, 1).unwrap();
    let sink = sink("kafka:payments", json!({"brokers": cluster.bootstrap_servers()}));
    (cluster, sink)
}

async fn expect_delivered(sink: &dyn Sink) {
    assert_eq!(deliver_all(sink, &[message("e-0")]).await, [Outcome::Delivered]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_for_all_pauses_the_lane_until_it_is_allowed() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    for (answer, word) in [
        (Answer::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, "Write"),
        (Answer::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, "IdempotentWrite"),
        (Answer::RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, "`compression`"),
    ] {
        cluster.request_errors(Request::Produce, &[answer]);
        let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
        for outcome in &outcomes {
            assert!(refused(outcome).contains(word), "{outcome:?}");
        }
        // No longer than it lasts.
        expect_delivered(&*sink).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_be_idempotent_is_told_so() {
    let (cluster, sink) = cluster();
    let forbidden = Answer::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(Request::InitProducerId, &[forbidden; 10]);
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("IdempotentWrite"), "{outcomes:?}");
    cluster.clear_request_errors(Request::InitProducerId);
    expect_delivered(&*sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_soon_is_tried_again_within_the_attempt() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    for answer in [
        Answer::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Answer::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        Answer::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        cluster.request_errors(Request::Produce, &[answer]);
        expect_delivered(&*sink).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lasts_longer_is_a_retry() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    let few = Answer::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    cluster.request_errors(Request::Produce, &[few; 1000]);
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{outcomes:?}");
    cluster.clear_request_errors(Request::Produce);
    deliver_with_retry(&*sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_that_broke_is_begun_anew() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    let broken = Answer::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    cluster.request_errors(Request::Produce, &[broken]);
    let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Retry { .. } | Outcome::Delivered), "{outcome:?}");
    }
    deliver_with_retry(&*sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_a_whole_request_is_asked_again_of_each_message() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    for answer in [
        Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        Answer::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
        Answer::RD_KAFKA_RESP_ERR_INVALID_RECORD,
    ] {
        cluster.request_errors(Request::Produce, &[answer]);
        let batch: Vec<_> = (0..5).map(|n| message(&format!("e-{n}"))).collect();
        assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 5], "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_a_message_alone_is_final() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    for (answer, word) in [
        (Answer::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "max.message.bytes"),
        (Answer::RD_KAFKA_RESP_ERR_INVALID_RECORD, "the topic's settings"),
        (Answer::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, "the topic's settings"),
    ] {
        // Among others, and by itself.
        cluster.request_errors(Request::Produce, &[answer; 2]);
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        assert!(rejected(&outcomes[0]).contains(word), "{outcomes:?}");
        expect_delivered(&*sink).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_comes_and_goes_is_a_retry() {
    let (cluster, sink) = cluster();
    expect_delivered(&*sink).await;
    cluster.broker_down(-1).unwrap();
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    let Outcome::Retry { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("payments"), "{error}");
    cluster.broker_up(-1).unwrap();
    deliver_with_retry(&*sink).await;
}

async fn deliver_with_retry(sink: &dyn Sink) {
    eventually("a message to be acknowledged", Duration::from_secs(30), async || {
        let outcomes = deliver_all(sink, &[message("e-9")]).await;
        match &outcomes[0] {
            Outcome::Delivered => Some(()),
            Outcome::Retry { .. } => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
}
