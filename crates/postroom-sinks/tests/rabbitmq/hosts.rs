//! Several brokers in one URL.

use super::start;
use crate::destination::retried;
use postroom_core::Outcome;
use postroom_testkit::free_port;
use postroom_testkit::sink_contract::{SinkHarness as _, deliver_all, message};
use serde_json::json;

#[tokio::test]
async fn a_broker_that_is_gone_is_passed_over() {
    let queue = start().await;
    let dead = free_port().unwrap();
    let url = format!("amqp://guest:guest@127.0.0.1:{dead},{}", queue.server());
    let sink = queue.with(json!({"url": url}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    assert_eq!(queue.received().await.len(), 1);
}

#[tokio::test]
async fn when_all_are_gone_each_is_named_and_no_password() {
    let queue = start().await;
    let (one, other) = (free_port().unwrap(), free_port().unwrap());
    let url = format!("amqp://guest:hunter2@127.0.0.1:{one},127.0.0.1:{other}");
    let outcomes = deliver_all(&*queue.with(json!({"url": url})), &[message("e-1")]).await;
    let error = retried(&outcomes[0]);
    assert!(error.contains(&one.to_string()) && error.contains(&other.to_string()), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
