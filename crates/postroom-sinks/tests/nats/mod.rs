//! The NATS sink against a real server, read back by a client of its own.

mod client;
mod forbidden;
mod hosts;

use crate::destination::{refused, rejected, retried, sink};
use crate::page;
use crate::verifiers;
use client::Client;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, Nats, OrSkip as _};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use uuid::Uuid;

/// A stream of its own.
struct Stream {
    server: &'static Nats,
    name: String,
}

async fn start() -> Stream {
    start_with(json!({})).await
}

async fn start_with(more: Value) -> Stream {
    let name = format!("s{}", Uuid::now_v7().simple());
    let server = Nats::shared().await;
    let subject = format!("{name}.>");
    Client::connect(server.address()).create_stream(&name, &[&name, &subject], more);
    Stream { server, name }
}

impl Stream {
    fn with(&self, options: Value) -> Arc<dyn Sink> {
        let mut all = json!({"url": format!("nats://{}", self.server.address())});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink(&format!("nats:{}", self.name), all)
    }
}

impl SinkHarness for Stream {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn server(&self) -> SocketAddr {
        self.server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        sink(&format!("nats:{}", self.name), json!({"url": format!("nats://{address}")}))
    }

    async fn received(&self) -> Vec<Received> {
        let (name, address) = (self.name.clone(), self.server());
        let read = move || Client::connect(address).read_stream(&name);
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("e-2");
        bad.headers = Some(RawJson::trusted(r#"{"a":"b\r\nNats-Rollup: all"}"#));
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let mut large = message("e-1");
        large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(2 << 20)));
        Ok(large)
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

postroom_testkit::sink_contract_tests!(start);

#[tokio::test]
async fn the_stream_drops_repetitions() {
    let stream = start().await;
    let sink = stream.with(json!({}));
    for _ in 0..3 {
        assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    }
    assert_eq!(stream.received().await.len(), 1);
}

#[tokio::test]
async fn order_within_a_batch_is_order_in_the_stream() {
    let stream = start().await;
    let sink = stream.with(json!({}));
    let batch: Vec<_> = (0..300).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 300]);
    let keys: Vec<_> = stream.received().await.into_iter().map(|one| one.key).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_subject_without_a_stream_pauses_the_lane_and_check_says_so() {
    let stream = start().await;
    let sink = stream.with(json!({"subject": "nobody.listens"}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("no stream at 127.0.0.1:"), "{outcomes:?}");
    let error = sink.probe().await.unwrap_err().to_string();
    assert!(error.contains("no stream"), "{error}");
}

#[tokio::test]
async fn a_subject_of_one_message_without_a_stream_leaves_the_lane_to_the_others() {
    let stream = start().await;
    let sink = stream.with(json!({"subject": "{tenant}.{event_type}"}));
    let mut streamed = message("e-2");
    streamed.tenant_id = Some(stream.name.clone());
    let outcomes = deliver_all(&*sink, &[message("e-1"), streamed]).await;
    assert!(retried(&outcomes[0]).contains("no stream at 127.0.0.1:"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
}

#[tokio::test]
async fn a_message_too_large_for_its_stream_is_final_and_its_neighbours_are_not() {
    let stream = start_with(json!({"max_msg_size": 2000})).await;
    let sink = stream.with(json!({}));
    let mut large = message("e-2");
    large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(3000)));
    let outcomes = deliver_all(&*sink, &[message("e-1"), large, message("e-3")]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    assert!(rejected(&outcomes[1]).contains("10054"), "{outcomes:?}");
}

#[tokio::test]
async fn a_full_stream_is_a_retry() {
    let stream = start_with(json!({"max_msgs": 1, "discard": "new"})).await;
    let sink = stream.with(json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    let Outcome::Retry { error, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(error.contains("10077"), "{error}");
}

#[tokio::test]
async fn subjects_can_be_made_from_the_message() {
    let stream = start().await;
    let template = format!("{}.{{tenant}}.{{event_type}}", stream.name);
    let sink = stream.with(json!({"subject": template}));
    let mut spaced = message("e-2");
    spaced.tenant_id = Some("two words".to_owned());
    let mut none = message("e-3");
    none.tenant_id = None;
    let outcomes = deliver_all(&*sink, &[message("e-1"), spaced, none]).await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert!(rejected(&outcomes[1]).contains("`subject`"), "{outcomes:?}");
    assert!(rejected(&outcomes[2]).contains("no tenant"), "{outcomes:?}");
    let received = stream.received().await;
    let subject = format!("{}.acme.order.placed.v1", stream.name);
    assert_eq!(received[0].attributes["nats-subject"], subject);
}

#[tokio::test]
async fn a_cloud_event_in_binary_mode_has_its_attributes_in_headers() {
    let stream = start().await;
    let sink = stream.with(json!({"format": "cloudevents-binary"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let received = stream.received().await.remove(0);
    for (name, value) in [
        ("ce-id", "e-1"),
        ("ce-specversion", "1.0"),
        ("ce-type", "order.placed.v1"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(received.attributes[name], value);
    }
}

#[tokio::test]
async fn cloud_events_are_read_by_the_official_sdk_in_both_modes() {
    let mut cases = Vec::new();
    for format in verifiers::FORMATS {
        let stream = start().await;
        let sink = stream.with(json!({"format": format}));
        let received = verifiers::read_back(&stream, &*sink).await;
        // The SDK has no binding for NATS, whose headers are encoded as those of HTTP.
        cases.push(json!({"kind": "cloud", "headers": received.attributes, "body": received.body}));
    }
    verifiers::expect_events("nats: CloudEvents", verifiers::by_python, &cases);
}

#[tokio::test]
async fn headers_that_command_the_server_are_left_out() {
    let stream = start().await;
    let sink = stream.with(json!({}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let mut rollup = message("e-2");
    rollup.headers = Some(RawJson::trusted(r#"{"Nats-Rollup":"all","nats-msg-id":"e-1"}"#));
    assert_eq!(deliver_all(&*sink, &[rollup]).await, [Outcome::Delivered]);
    assert_eq!(stream.received().await.len(), 2, "the stream was not purged");
}

#[tokio::test]
async fn subjects_that_command_the_server_are_not_made_from_a_message() {
    let stream = start().await;
    assert_eq!(
        deliver_all(&*stream.with(json!({})), &[message("e-1")]).await[0],
        Outcome::Delivered
    );
    let fields = |tenant: &str, event_type: &str| Message {
        tenant_id: Some(tenant.to_owned()),
        event_type: event_type.to_owned(),
        ..message("e-2")
    };
    let purge = format!("API.STREAM.PURGE.{}", stream.name);
    for mode in ["jetstream", "core"] {
        let sink = stream.with(json!({"mode": mode, "subject": "{tenant}.{event_type}"}));
        let batch = [
            fields("$JS", &purge),
            fields("$KV", "settings.theme"),
            fields("_INBOX", "someone.1"),
            fields(&stream.name, mode),
        ];
        let outcomes = deliver_all(&*sink, &batch).await;
        for outcome in &outcomes[..3] {
            assert!(rejected(outcome).contains("commanded"), "{outcome:?}");
        }
        assert_eq!(outcomes[3], Outcome::Delivered);
        // A half of it in the template is not all of it.
        let sink = stream.with(json!({"mode": mode, "subject": "_IN{tenant}.{event_type}"}));
        let outcomes = deliver_all(&*sink, &[fields("BOX", "someone.1")]).await;
        assert!(rejected(&outcomes[0]).contains("commanded"), "{outcomes:?}");
    }
    assert!(stream.received().await.len() >= 2, "the stream was not purged");
    // What the operator has written is meant.
    let sink = stream.with(json!({"mode": "core", "subject": "$KV.{tenant}.{event_type}"}));
    assert_eq!(deliver_all(&*sink, &[fields("settings", "theme")]).await, [Outcome::Delivered]);
}

#[tokio::test]
async fn core_mode_needs_no_stream_and_is_heard_by_whoever_listens() {
    let stream = start().await;
    let subject = format!("core{}", stream.name);
    let sink = stream.with(json!({"mode": "core", "subject": subject}));
    assert_eq!(deliver_all(&*sink, &[message("e-0")]).await, [Outcome::Delivered], "unheard");
    let address = stream.server.address();
    let mut client = Client::connect(address);
    client.subscribe(&subject);
    let batch = [message("e-1"), message("e-2")];
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 2]);
    for sent in batch {
        let heard = client.next();
        assert_eq!(
            (heard.subject.as_str(), heard.body.as_str()),
            (&*subject, sent.payload.as_str())
        );
        assert_eq!(heard.headers["idempotency-key"], sent.event_id);
        let id = format!("test:contract/order-1/{}", sent.event_id);
        assert_eq!(heard.headers["nats-msg-id"], id);
    }
    sink.probe().await.unwrap();
}

#[tokio::test]
async fn what_a_user_may_not_do_pauses_the_lane_and_shows_no_password() {
    let settings = r#"authorization { users = [
        { user: relay, password: hunter2, permissions: {
            publish: ["allowed", "$JS.API.>"], subscribe: ["_INBOX.>"] } }
    ] }"#;
    let server = Nats::private(settings).await.or_skip();
    let address = server.address();
    for (mode, login) in [("jetstream", "relay:hunter2"), ("core", "relay:hunter2")] {
        let url = format!("nats://{login}@{address}");
        let forbidden = sink("nats:forbidden", json!({"url": url, "mode": mode}));
        let outcomes = deliver_all(&*forbidden, &[message("e-1")]).await;
        let error = refused(&outcomes[0]);
        assert!(
            error.contains("does not allow this user") && !error.contains("hunter2"),
            "{error}"
        );
    }
    // One kind of message that is forbidden is not all of them.
    for mode in ["jetstream", "core"] {
        let url = format!("nats://relay:hunter2@{address}");
        let options = json!({"url": url, "mode": mode, "subject": "{event_type}"});
        let outcomes = deliver_all(&*sink("nats:x", options), &[message("e-1")]).await;
        assert!(retried(&outcomes[0]).contains("does not allow this user"), "{outcomes:?}");
    }
    // The question by which core mode knows that all has arrived is forbidden here, too: that is
    // an answer all the same.
    let url = format!("nats://relay:hunter2@{address}");
    let allowed = sink("nats:allowed", json!({"url": url, "mode": "core"}));
    assert_eq!(deliver_all(&*allowed, &[message("e-1")]).await, [Outcome::Delivered]);

    let url = format!("nats://relay:hunter3@{address}");
    let wrong = sink("nats:allowed", json!({"url": url}));
    let outcomes = deliver_all(&*wrong, &[message("e-1")]).await;
    let error = refused(&outcomes[0]);
    assert!(error.contains("refuses the login") && !error.contains("hunter"), "{error}");
}

#[tokio::test]
async fn tls_is_checked_against_the_named_authority() {
    let authority = Authority::new();
    let files = authority.issue(&["localhost"], "nobody");
    let settings = format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}",
        files.certificate().display().to_string(),
        files.key().display().to_string()
    );
    let server = Nats::private(&settings).await.or_skip();
    let url = format!("tls://localhost:{}", server.address().port());
    let trusting = json!({"url": url, "mode": "core", "ca_file": authority.file()});
    let outcomes = deliver_all(&*sink("nats:a", trusting), &[message("e-1")]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    let doubting = sink("nats:a", json!({"url": url, "mode": "core"}));
    let outcomes = deliver_all(&*doubting, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("`ca_file`"), "{outcomes:?}");
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let stream = Stream { server: Nats::shared().await, name: "orders".to_owned() };
    let address = stream.server();
    Client::connect(address).create_stream("orders", &["orders.>"], json!({}));
    page::deliver("nats", json!({"url": format!("nats://{address}")})).await;
    assert_eq!(stream.received().await.len(), 1);
}
