//! The SQS sink against moto, read back by Amazon's own library for Python. What moto does not
//! do, a stand-in answers as Amazon's documentation says.

use crate::aws::{Queue, answer, fresh_name};
use crate::destination::{refused, rejected, retried, sink};
use crate::http_receiver::{Answer, Receiver, Request};
use crate::page;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, Moto, Smtp, SmtpSecurity, skip};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// A queue of its own, or why there is none.
struct Harness(Result<Queue, String>);

async fn start() -> Harness {
    Harness(Moto::shared().await.map(|moto| Queue::create(moto, &fresh_name(), json!({}))))
}

/// For a test beyond the contract. `None` is a skip of it.
async fn queue(test: &str, suffix: &str, attributes: Value) -> Option<Queue> {
    match Moto::shared().await {
        Ok(moto) => Some(Queue::create(moto, &format!("{}{suffix}", fresh_name()), attributes)),
        Err(reason) => {
            skip(&format!("sqs: {test}"), &reason);
            None
        }
    }
}

/// A sink for a queue by its name.
fn sink_at(address: SocketAddr, name: &str, more: &Value) -> Arc<dyn Sink> {
    let mut options = json!({"endpoint": format!("http://{address}"), "access_key_id": "test",
        "secret_access_key": "hunter2"});
    for (key, value) in more.as_object().unwrap() {
        options[key] = value.clone();
    }
    sink(&format!("sqs:{name}"), options)
}

impl Harness {
    fn queue(&self) -> &Queue {
        self.0.as_ref().unwrap()
    }
}

impl SinkHarness for Harness {
    fn name(&self) -> &'static str {
        "sqs"
    }

    fn missing(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    fn server(&self) -> SocketAddr {
        self.queue().server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        sink_at(address, &self.queue().name, &json!({}))
    }

    async fn received(&self) -> Vec<Received> {
        self.queue().received()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("e-2");
        bad.payload = RawJson::trusted("\"\u{ffff}\"");
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Ok(large("e-1", 1 << 20))
    }
}

postroom_testkit::sink_contract_tests!(start);

fn large(event_id: &str, bytes: usize) -> Message {
    let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(bytes)));
    Message { payload, ..message(event_id) }
}

#[tokio::test]
async fn a_fifo_queue_drops_repetitions_and_keeps_order_by_the_ordering_key() {
    let attributes = json!({"FifoQueue": "true"});
    let Some(queue) = queue("a_fifo_queue", ".fifo", attributes).await else { return };
    let sink = sink_at(queue.server.address(), &queue.name, &json!({}));
    let keyed = |event_id: &str, key: Option<&str>| Message {
        ordering_key: key.map(str::to_owned),
        ..message(event_id)
    };
    let mut batch: Vec<_> = (0..25).map(|n| keyed(&format!("e-{n}"), Some("k 1"))).collect();
    batch.push(keyed("e 25", None));
    for _ in 0..2 {
        assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 26]);
    }
    let messages = queue.messages();
    let of = |one: &Value, name: &str| one["Attributes"][name].as_str().unwrap().to_owned();
    let mut ids: Vec<_> = messages.iter().map(|one| of(one, "MessageDeduplicationId")).collect();
    assert_eq!(ids.len(), 26, "repetitions are dropped: {ids:?}");
    let hashed = ids.iter().position(|id| id.len() == 64).expect("a key with a space is hashed");
    assert_eq!(of(&messages[hashed], "MessageGroupId"), "order-1", "the stream stands in");
    ids.remove(hashed);
    assert_eq!(ids, (0..25).map(|n| format!("test:contract/order-1/e-{n}")).collect::<Vec<_>>());
    let group = of(&messages[usize::from(hashed == 0)], "MessageGroupId");
    assert_eq!(group.len(), 64, "a group with a space is hashed");
    let other = Message { stream_id: "order-2".to_owned(), ..message("e-1") };
    let copy = Message { copy: 1, ..message("e-1") };
    assert_eq!(deliver_all(&*sink, &[other, copy]).await, vec![Outcome::Delivered; 2]);
    assert_eq!(queue.messages().len(), 28, "these are no repetitions");
}

#[tokio::test]
async fn a_missing_queue_pauses_the_lane_and_is_found_once_it_is_there() {
    let Some(other) = queue("a_missing_queue", "", json!({})).await else { return };
    let name = fresh_name();
    let sink = sink_at(other.server.address(), &name, &json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("NonExistentQueue"), "{outcomes:?}");
    assert!(sink.probe().await.unwrap_err().to_string().contains(&name));
    let queue = Queue::create(other.server, &name, json!({}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    other.server.call("sqs", "delete_queue", &json!({"QueueUrl": queue.url}));
    let outcomes = deliver_all(&*sink, &[message("e-2")]).await;
    assert!(refused(&outcomes[0]).contains("NonExistentQueue"), "{outcomes:?}");
}

#[tokio::test]
async fn a_message_too_large_for_its_queue_is_final_and_its_neighbours_are_not() {
    let attributes = json!({"MaximumMessageSize": "4096"});
    let Some(queue) = queue("a_message_too_large", "", attributes).await else { return };
    let sink = sink_at(queue.server.address(), &queue.name, &json!({}));
    let batch = [message("e-1"), large("e-2", 5000), message("e-3")];
    let outcomes = deliver_all(&*sink, &batch).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    assert!(rejected(&outcomes[1]).contains("InvalidParameterValue"), "{outcomes:?}");
    let keys: Vec<_> = queue.received().into_iter().map(|one| one.key).collect();
    assert_eq!(keys, ["e-1", "e-3"]);
}

#[tokio::test]
async fn large_messages_are_spread_over_requests() {
    let Some(queue) = queue("large_messages", "", json!({})).await else { return };
    let sink = sink_at(queue.server.address(), &queue.name, &json!({}));
    let mut batch: Vec<_> = (0..9).map(|n| large(&format!("e-{n}"), 150 << 10)).collect();
    batch.push(large("e-9", 1_000_000));
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 10]);
    assert_eq!(queue.received().len(), 10);
}

#[tokio::test]
async fn a_queue_can_be_named_by_its_url_and_get_cloud_events() {
    let Some(queue) = queue("a_queue_by_url", "", json!({})).await else { return };
    let options = json!({"queue_url": queue.url, "format": "cloudevents",
        "access_key_id": "test", "secret_access_key": "hunter2"});
    let sink = sink("sqs:whatever", options);
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let received = queue.received().remove(0);
    let event: Value = serde_json::from_str(&received.body).unwrap();
    assert_eq!((&event["id"], &event["specversion"]), (&json!("e-1"), &json!("1.0")));
    assert_eq!(received.attributes["content-type"], "application/cloudevents+json");
}

/// Who sends an error to a batch, by the code that stands in the header of the answer.
async fn outcomes_of(status: &'static str, code: &'static str) -> Vec<Outcome> {
    let reply = move |_: &_| {
        let headers = format!("x-amzn-query-error: {code};Sender\r\n");
        answer(status, &headers, r#"{"__type":"com.amazonaws.sqs#X","message":"words"}"#)
    };
    let receiver = Receiver::start(Answer::By(Arc::new(reply))).await;
    let options = json!({"queue_url": "http://127.0.0.1/1/orders"});
    let sink = sink_at(receiver.address, "orders", &options);
    deliver_all(&*sink, &[message("e-1"), message("e-2")]).await
}

#[tokio::test]
async fn codes_are_read_from_the_answer_and_secrets_do_not_show() {
    for code in ["AccessDenied", "InvalidClientTokenId", "ExpiredToken", "KMS.DisabledException"] {
        let outcomes = outcomes_of("403 Forbidden", code).await;
        for outcome in &outcomes {
            let error = refused(outcome);
            assert!(error.contains(code) && !error.contains("hunter2"), "{error}");
        }
    }
    let outcomes = outcomes_of("400 Bad Request", "AWS.SimpleQueueService.BatchRequestTooLong");
    assert!(rejected(&outcomes.await[1]).contains("BatchRequestTooLong"));
    for (status, code) in [
        ("403 Forbidden", "RequestThrottled"),
        ("503 Service Unavailable", "ServiceUnavailable"),
        ("500 Internal Server Error", "InternalFailure"),
        ("400 Bad Request", "ThrottlingException"),
    ] {
        let outcomes = outcomes_of(status, code).await;
        let is_retry = |outcome: &Outcome| matches!(outcome, Outcome::Retry { .. });
        assert!(outcomes.iter().all(is_retry), "{code}: {outcomes:?}");
    }
}

#[tokio::test]
async fn each_entry_of_a_batch_has_an_outcome_of_its_own() {
    let body = r#"{"Successful":[{"Id":"2","MessageId":"m","MD5OfMessageBody":"x"}],
        "Failed":[{"Id":"0","SenderFault":true,"Code":"InvalidMessageContents","Message":"hunter2"},
                  {"Id":"1","SenderFault":false,"Code":"InternalError"}]}"#;
    let reply = move |_: &_| answer("200 OK", "content-type: application/x-amz-json-1.0\r\n", body);
    let receiver = Receiver::start(Answer::By(Arc::new(reply))).await;
    let options = json!({"queue_url": "http://127.0.0.1/1/orders"});
    let sink = sink_at(receiver.address, "orders", &options);
    let batch: Vec<_> = (0..4).map(|n| message(&format!("e-{n}"))).collect();
    let outcomes = deliver_all(&*sink, &batch).await;
    assert!(!rejected(&outcomes[0]).contains("hunter2"), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Retry { .. }), "{outcomes:?}");
    assert_eq!(outcomes[2], Outcome::Delivered);
    assert!(matches!(outcomes[3], Outcome::Retry { .. }), "not mentioned: {outcomes:?}");
}

/// Large enough that each message is a request of its own.
#[tokio::test]
async fn in_a_fifo_queue_nothing_overtakes_a_message_that_is_tried_again() {
    for (code, is_sent) in [("InternalError", false), ("InvalidMessageContents", true)] {
        let reply = move |request: &Request| {
            let body = if request.body.contains(r#""Id":"1""#) {
                format!(r#"{{"Failed":[{{"Id":"1","SenderFault":false,"Code":"{code}"}}]}}"#)
            } else {
                let sent = |n| format!(r#"{{"Id":"{n}","MessageId":"m","MD5OfMessageBody":"x"}}"#);
                format!(r#"{{"Successful":[{},{}]}}"#, sent(0), sent(2))
            };
            answer("200 OK", "content-type: application/x-amz-json-1.0\r\n", &body)
        };
        let receiver = Receiver::start(Answer::By(Arc::new(reply))).await;
        let options = json!({"queue_url": "http://127.0.0.1/1/orders.fifo"});
        let sink = sink_at(receiver.address, "orders.fifo", &options);
        let batch: Vec<_> = (0..3).map(|n| large(&format!("e-{n}"), 150 << 10)).collect();
        let outcomes = deliver_all(&*sink, &batch).await;
        assert_eq!(outcomes[0], Outcome::Delivered);
        assert_eq!(outcomes[2] == Outcome::Delivered, is_sent, "{outcomes:?}");
        assert_eq!(receiver.requests().len(), if is_sent { 3 } else { 2 });
        if is_sent {
            rejected(&outcomes[1]);
        } else {
            retried(&outcomes[1]);
            assert!(retried(&outcomes[2]).contains("not sent"), "{outcomes:?}");
        }
    }
}

/// A request that is refused as a whole is repeated message by message.
#[tokio::test]
async fn one_by_one_a_message_waits_for_another_only_in_a_fifo_queue() {
    for (queue, is_sent) in [("orders", true), ("orders.fifo", false)] {
        let reply = |request: &Request| {
            let ids: Vec<_> = ["0", "1", "2"]
                .into_iter()
                .filter(|id| request.body.contains(&format!(r#""Id":"{id}""#)))
                .collect();
            let json = "content-type: application/x-amz-json-1.0\r\n";
            match ids[..] {
                ["1"] => {
                    let failed = r#"{"Id":"1","SenderFault":false,"Code":"InternalError"}"#;
                    answer("200 OK", json, &format!(r#"{{"Failed":[{failed}]}}"#))
                }
                [id] => {
                    let sent = format!(r#"{{"Id":"{id}","MessageId":"m","MD5OfMessageBody":"x"}}"#);
                    answer("200 OK", json, &format!(r#"{{"Successful":[{sent}]}}"#))
                }
                _ => {
                    let code = "AWS.SimpleQueueService.BatchRequestTooLong";
                    let headers = format!("x-amzn-query-error: {code};Sender\r\n");
                    answer("400 Bad Request", &headers, r#"{"message":"words"}"#)
                }
            }
        };
        let receiver = Receiver::start(Answer::By(Arc::new(reply))).await;
        let options = json!({"queue_url": format!("http://127.0.0.1/1/{queue}")});
        let sink = sink_at(receiver.address, queue, &options);
        let batch: Vec<_> = (0..3).map(|n| message(&format!("e-{n}"))).collect();
        let outcomes = deliver_all(&*sink, &batch).await;
        assert_eq!(outcomes[0], Outcome::Delivered);
        assert!(retried(&outcomes[1]).contains("InternalError"), "{outcomes:?}");
        if is_sent {
            assert_eq!(outcomes[2], Outcome::Delivered);
        } else {
            assert!(retried(&outcomes[2]).contains("not sent"), "{outcomes:?}");
        }
    }
}

/// Whatever speaks TLS will do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_nobody_vouches_for_pauses_the_lane() {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "root");
    let server = match Smtp::start(SmtpSecurity::Tls(&files), false) {
        Ok(server) => server,
        Err(error) => return skip("sqs: a_certificate_that_nobody", &format!("{error:#}")),
    };
    let options = json!({"queue_url": format!("https://{}/1/orders", server.address()),
        "access_key_id": "test", "secret_access_key": "hunter2"});
    let sink = sink("sqs:orders", options);
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("certificate"), "{outcomes:?}");
    assert!(sink.probe().await.unwrap_err().to_string().contains("certificate"));
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let test = "the_configuration_on_its_page_delivers";
    let Some(queue) = queue(test, "", json!({})).await else { return };
    let endpoint = format!("http://{}", queue.server.address());
    let replaced = json!({"queue": queue.name, "region": "us-east-1", "endpoint": endpoint,
        "access_key_id": "test", "secret_access_key": "hunter2"});
    page::deliver("sqs", replaced).await;
    assert_eq!(queue.received().len(), 1);
}
