//! The RabbitMQ sink against a real broker, read back by Python's pika.

mod hosts;

use crate::destination::{refused, rejected, retried, sink};
use crate::page;
use crate::verifiers;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, OrSkip as _, RabbitMq, free_port, system_python};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use uuid::Uuid;

/// An exchange and a queue of its own.
struct Queue {
    server: &'static RabbitMq,
    name: String,
}

async fn start() -> Queue {
    start_with("#", json!({})).await
}

async fn start_with(binding: &str, arguments: Value) -> Queue {
    let queue =
        Queue { server: RabbitMq::shared().await, name: format!("q{}", Uuid::now_v7().simple()) };
    queue.pika(&["declare", &queue.name, &queue.name, binding, &arguments.to_string()]).await;
    queue
}

impl Queue {
    /// What pika prints, a JSON object per line.
    async fn pika(&self, arguments: &[&str]) -> Vec<Value> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rabbitmq/client.py");
        let mut command = std::process::Command::new(system_python());
        command.arg(script).arg(self.server.address().port().to_string()).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn with(&self, options: Value) -> Arc<dyn Sink> {
        let mut all = json!({"url": format!("amqp://{}", self.server.address())});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink(&format!("rabbitmq:{}", self.name), all)
    }
}

impl SinkHarness for Queue {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn server(&self) -> SocketAddr {
        self.server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        self.with(json!({"url": format!("amqp://{address}")}))
    }

    async fn received(&self) -> Vec<Received> {
        let lines = self.pika(&["read", &self.name]).await;
        let received = lines.into_iter().map(|line| Received {
            key: line["key"].as_str().unwrap().to_owned(),
            body: line["body"].as_str().unwrap().to_owned(),
            attributes: serde_json::from_value(line["headers"].clone()).unwrap(),
        });
        received.collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("e-2");
        bad.event_type = "t".repeat(256);
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Ok(large("e-1"))
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// A message over the broker's limit.
fn large(event_id: &str) -> Message {
    let mut large = message(event_id);
    large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(2 << 20)));
    large
}

postroom_testkit::sink_contract_tests!(start);

#[tokio::test]
async fn messages_are_persistent_and_carry_the_standard_properties() {
    let queue = start().await;
    assert_eq!(deliver_all(&*queue.with(json!({})), &[message("e-1")]).await, [Outcome::Delivered]);
    let received = queue.received().await.remove(0);
    for (name, value) in [
        ("property:delivery_mode", "2"),
        ("property:content_type", "application/json"),
        ("property:correlation_id", "c-1"),
        ("property:type", "order.placed.v1"),
    ] {
        assert_eq!(received.attributes[name], value);
    }
}

#[tokio::test]
async fn order_within_a_batch_is_order_in_the_queue() {
    let queue = start().await;
    let batch: Vec<_> = (0..300).map(|n| message(&format!("e-{n}"))).collect();
    let outcomes = deliver_all(&*queue.with(json!({})), &batch).await;
    assert_eq!(outcomes, vec![Outcome::Delivered; 300]);
    let keys: Vec<_> = queue.received().await.into_iter().map(|one| one.key).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_message_that_closes_the_channel_takes_no_other_with_it() {
    let queue = start().await;
    let batch = [message("e-1"), large("e-2"), message("e-3")];
    let outcomes = deliver_all(&*queue.with(json!({})), &batch).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    assert!(rejected(&outcomes[1]).contains("406"), "{outcomes:?}");
}

#[tokio::test]
async fn an_exchange_that_is_missing_pauses_the_lane_and_check_says_so() {
    let queue = start().await;
    let sink = queue.with(json!({"exchange": "missing"}));
    let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
    for outcome in &outcomes {
        assert!(refused(outcome).contains("404"), "{outcomes:?}");
    }
    let error = sink.probe().await.unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("declare the exchange"), "{error}");
}

#[tokio::test]
async fn an_exchange_of_one_message_that_is_missing_leaves_the_lane_to_the_others() {
    let queue = start().await;
    let forbidden = format!("forbidden-{}", queue.name);
    queue.pika(&["exchange", &forbidden]).await;
    let of = |event_id: &str, tenant: &str| Message {
        tenant_id: Some(tenant.to_owned()),
        ..message(event_id)
    };
    // So long that the broker cuts its answer within the name.
    let long = "x".repeat(230);
    let batch =
        [of("e-1", "missing"), of("e-2", &queue.name), of("e-3", &forbidden), of("e-4", &long)];
    let outcomes = deliver_all(&*queue.with(json!({"exchange": "{tenant}"})), &batch).await;
    assert!(retried(&outcomes[0]).contains("404"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
    assert!(retried(&outcomes[2]).contains("403"), "{outcomes:?}");
    assert!(retried(&outcomes[3]).contains("404"), "{outcomes:?}");
    // At the head, it would take the others with it.
    let outcomes = deliver_all(
        &*queue.with(json!({"exchange": "{tenant}"})),
        &[of("e-5", &long), batch[1].clone()],
    )
    .await;
    assert!(retried(&outcomes[0]).contains("404"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
}

#[tokio::test]
async fn a_returned_message_is_not_delivered() {
    let queue = start_with("order.*.v1", json!({})).await;
    // By template: this kind of message has no queue, others may.
    let mut other = message("e-1");
    other.event_type = "invoice.sent.v1".to_owned();
    let outcomes = deliver_all(&*queue.with(json!({})), &[other, message("e-2")]).await;
    let Outcome::Retry { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("312") && error.contains("bind one"), "{error}");
    assert_eq!(outcomes[1], Outcome::Delivered);
    // Fixed: no message of this integration has one.
    let fixed = queue.with(json!({"routing_key": "nobody"}));
    let outcomes = deliver_all(&*fixed, &[message("e-3")]).await;
    assert!(refused(&outcomes[0]).contains("312"), "{outcomes:?}");
    assert_eq!(queue.received().await.len(), 1);
}

#[tokio::test]
async fn where_headers_route_one_message_does_not_pause_the_lane_of_others() {
    let queue = start().await;
    let exchange = format!("h-{}", queue.name);
    queue.pika(&["by_headers", &exchange, &queue.name, r#"{"shop":"eu"}"#]).await;
    let sink = queue.with(json!({"exchange": exchange, "routing_key": ""}));
    let of = |event_id: &str, shop: &str| Message {
        headers: Some(RawJson::trusted(format!(r#"{{"shop":"{shop}"}}"#))),
        ..message(event_id)
    };
    for first in ["us", "eu"] {
        // One closes the channel, so that the rest is published in two turns.
        let batch = [
            of(&format!("{first}-1"), first),
            large("e-2"),
            of("e-3", "eu"),
            of("e-4", "us"),
            of("e-5", "eu"),
        ];
        let outcomes = deliver_all(&*sink, &batch).await;
        rejected(&outcomes[1]);
        let (there, gone): (&[usize], &[usize]) =
            if first == "eu" { (&[0, 2, 4], &[3]) } else { (&[2, 4], &[0, 3]) };
        for index in there {
            assert_eq!(outcomes[*index], Outcome::Delivered, "{outcomes:?}");
        }
        for index in gone {
            assert!(retried(&outcomes[*index]).contains("its headers"), "{outcomes:?}");
        }
    }
    // As far as anyone can tell, no message of this integration has a queue.
    let outcomes = deliver_all(&*sink, &[of("e-6", "us"), of("e-7", "us")]).await;
    for outcome in &outcomes {
        assert!(refused(outcome).contains("312"), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_full_queue_is_a_retry() {
    let queue = start_with("#", json!({"x-max-length": 1, "x-overflow": "reject-publish"})).await;
    let sink = queue.with(json!({}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let outcomes = deliver_all(&*sink, &[message("e-2")]).await;
    let Outcome::Retry { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("may be full"), "{error}");
}

#[tokio::test]
async fn the_default_exchange_leads_straight_to_a_queue() {
    let queue = start().await;
    let sink = queue.with(json!({"exchange": "", "routing_key": queue.name}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    sink.probe().await.unwrap();
    assert_eq!(queue.received().await.len(), 1);
}

#[tokio::test]
async fn a_cloud_event_in_binary_mode_has_its_attributes_in_headers() {
    let queue = start().await;
    let sink = queue.with(json!({"format": "cloudevents-binary"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let received = queue.received().await.remove(0);
    assert_eq!(received.attributes["cloudEvents:id"], "e-1");
    assert_eq!(received.attributes["cloudEvents:specversion"], "1.0");
}

#[tokio::test]
async fn cloud_events_are_read_by_the_official_sdk_in_both_modes() {
    let mut cases = Vec::new();
    for format in verifiers::FORMATS {
        let queue = start().await;
        let sink = queue.with(json!({"format": format}));
        let received = verifiers::read_back(&queue, &*sink).await;
        let content_type = &received.attributes["property:content_type"];
        cases.push(json!({
            "kind": "amqp", "headers": received.attributes, "body": received.body,
            "content_type": content_type,
        }));
    }
    verifiers::expect_events("rabbitmq: CloudEvents", verifiers::by_python, &cases);
}

#[tokio::test]
async fn headers_that_route_are_left_out() {
    let queue = start().await;
    let mut routed = message("e-1");
    routed.headers =
        Some(RawJson::trusted(r#"{"CC":"elsewhere","BCC":["elsewhere"],"shop":"eu"}"#));
    assert_eq!(deliver_all(&*queue.with(json!({})), &[routed]).await, [Outcome::Delivered]);
    let received = queue.received().await.remove(0);
    assert_eq!(received.attributes["shop"], "eu");
    assert!(!received.attributes.contains_key("CC") && !received.attributes.contains_key("BCC"));
}

#[tokio::test]
async fn what_a_user_may_not_do_pauses_the_lane_and_shows_no_password() {
    let queue = start().await;
    let address = queue.server.address();
    let forbidden = format!("forbidden-{}", queue.name);
    queue.pika(&["exchange", &forbidden]).await;
    for (options, code) in [
        (json!({"exchange": forbidden}), "403"),
        (json!({"url": format!("amqp://guest:hunter2@{address}")}), "403"),
        (json!({"url": format!("amqp://guest:guest@{address}/hunter2")}), "530"),
    ] {
        let outcomes = deliver_all(&*queue.with(options), &[message("e-1")]).await;
        let error = refused(&outcomes[0]);
        assert!(error.contains(code) && !error.contains("guest:"), "{error}");
    }
}

#[tokio::test]
async fn tls_is_checked_against_the_named_authority() {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "nobody");
    let port = free_port().unwrap();
    let settings = format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\nssl_options.verify = verify_none\n",
        files.certificate().display(),
        files.key().display()
    );
    let _server = RabbitMq::private(&settings).await.or_skip();
    let url = format!("amqps://127.0.0.1:{port}");
    // Without an exchange of that name, which the broker says only to whom it talks at all.
    let trusting = sink("rabbitmq:missing", json!({"url": url, "ca_file": authority.file()}));
    let outcomes = deliver_all(&*trusting, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("404"), "{outcomes:?}");
    // Nobody vouches for it, another does, and it is made out to another name.
    let stranger = Authority::new();
    for options in [
        json!({"url": url}),
        json!({"url": url, "ca_file": stranger.file()}),
        json!({"url": url.replace("127.0.0.1", "localhost"), "ca_file": authority.file()}),
    ] {
        let outcomes = deliver_all(&*sink("rabbitmq:missing", options), &[message("e-2")]).await;
        assert!(refused(&outcomes[0]).contains("`ca_file`"), "{outcomes:?}");
    }
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let queue = Queue { server: RabbitMq::shared().await, name: "orders".to_owned() };
    queue.pika(&["declare", "orders", "orders", "acme.#", "{}"]).await;
    page::deliver("rabbitmq", json!({"url": format!("amqp://{}", queue.server())})).await;
    assert_eq!(queue.received().await.len(), 1);
}
