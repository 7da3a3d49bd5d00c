//! What a receiver gets.

use super::{LOOPBACK, configured, sink};
use crate::http_receiver::{Answer, Receiver};
use crate::messages::{deliver_one, message};
use crate::page;
use postroom_core::{Outcome, RawJson, Sink as _};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn the_payload_arrives_byte_for_byte_with_all_that_a_receiver_may_want_to_know() {
    let receiver = Receiver::answering("204 No Content", "").await;
    let mut sent = message("e-1");
    sent.payload = RawJson::trusted("{ \"b\": 1.50,\n \"a\": \"é\" }");
    sent.headers = Some(RawJson::trusted(
        r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","X-Shop":"eu",
            "priority":3,"test":true,"nothing":null,"nested":{"a":1},
            "Idempotency-Key":"mine","Webhook-Signature":"forged","postroom-user":"forged",
            "ce-id":"forged","postroom-replay-of":"018f0000-0000-7000-8000-000000000001"}"#,
    ));
    sent.tenant_id = Some("Müller & Söhne".to_owned());
    sent.correlation_id = Some("c-1".to_owned());
    sent.causation_id = Some("k-1".to_owned());
    sent.schema_version = 3;
    sent.attempts = 4;
    let sink = sink(&receiver.url(), Duration::from_secs(5));
    assert_eq!(deliver_one(&sink, sent.clone()).await, Outcome::Delivered);

    let request = receiver.requests().remove(0);
    assert_eq!(request.line, "POST /hook?key=s3cret HTTP/1.1");
    assert_eq!(request.body, sent.payload.as_str());
    let id = sent.id.to_string();
    for (name, value) in [
        ("content-type", "application/json"),
        ("idempotency-key", "e-1"),
        ("webhook-id", "e-1"),
        ("postroom-event-id", "e-1"),
        ("postroom-message-id", id.as_str()),
        ("postroom-event-type", "order.placed.v1"),
        ("postroom-stream", "order-1"),
        ("postroom-tenant", "Müller & Söhne"),
        ("postroom-correlation", "c-1"),
        ("postroom-causation", "k-1"),
        ("postroom-schema-version", "3"),
        ("postroom-attempt", "5"),
        ("postroom-replay-of", "018f0000-0000-7000-8000-000000000001"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("x-shop", "eu"),
        ("priority", "3"),
        ("test", "true"),
        ("nested", "{\"a\":1}"),
    ] {
        assert_eq!(request.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(request.headers["user-agent"].starts_with("postroom/"));
    for absent in ["nothing", "postroom-user", "ce-id", "webhook-signature", "accept-encoding"] {
        assert!(!request.headers.contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn configured_headers_are_sent_and_a_message_cannot_replace_them() {
    let receiver = Receiver::answering("200 OK", "").await;
    let sink = configured(&receiver.url(), json!({"headers": {"Authorization": "Bearer t"}}));
    let mut sent = message("e-1");
    sent.headers = Some(RawJson::trusted(r#"{"authorization":"Bearer stolen"}"#));
    assert_eq!(deliver_one(&*sink, sent).await, Outcome::Delivered);
    assert_eq!(receiver.requests()[0].headers["authorization"], "Bearer t");
}

#[tokio::test]
async fn credentials_are_sent_as_basic_or_bearer() {
    let receiver = Receiver::answering("200 OK", "").await;
    for (auth, expected) in [
        (json!({"bearer": "t0ken"}), "Bearer t0ken"),
        // The example of RFC 7617.
        (
            json!({"basic": {"user": "Aladdin", "password": "open sesame"}}),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        ),
    ] {
        let sink = configured(&receiver.url(), json!({ "auth": auth }));
        assert_eq!(deliver_one(&*sink, message("e-1")).await, Outcome::Delivered);
        let request = receiver.requests().pop().unwrap();
        assert_eq!(request.headers["authorization"], expected);
    }
}

#[tokio::test]
async fn the_key_can_be_the_rows_own_id_and_the_body_an_envelope() {
    let receiver = Receiver::answering("200 OK", "").await;
    let options = json!({"idempotency_key": "message_id", "format": "envelope"});
    let sink = configured(&receiver.url(), options);
    let sent = message("e-1");
    assert_eq!(deliver_one(&*sink, sent.clone()).await, Outcome::Delivered);
    let request = receiver.requests().remove(0);
    let id = sent.id.to_string();
    for name in ["idempotency-key", "webhook-id", "postroom-message-id"] {
        assert_eq!(request.headers[name], id, "{name}");
    }
    let envelope: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(envelope["id"], "e-1");
    assert_eq!(envelope["payload"], json!({"id": "e-1"}));
}

#[tokio::test]
async fn connections_are_used_again_one_message_each_time() {
    let receiver = Receiver::start(Answer::Bytes(
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec(),
    ))
    .await;
    let sink = sink(&receiver.url(), Duration::from_secs(5));
    for n in 0..20 {
        assert_eq!(deliver_one(&sink, message(&format!("e-{n}"))).await, Outcome::Delivered);
    }
    let connections: Vec<usize> = receiver.requests().iter().map(|r| r.connection).collect();
    assert_eq!(connections, vec![0; 20]);
    assert_eq!(sink.batch_max(), 1);
}

#[tokio::test]
async fn a_probe_delivers_nothing_and_any_answer_will_do() {
    let receiver = Receiver::answering("405 Method Not Allowed", "").await;
    sink(&receiver.url(), Duration::from_secs(5)).probe().await.unwrap();
    assert!(receiver.requests()[0].line.starts_with("HEAD "));
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let receiver = Receiver::answering("204 No Content", "").await;
    page::deliver("webhook", json!({"url": receiver.url(), "allow_addresses": [LOOPBACK]})).await;
    assert!(receiver.requests()[0].headers["webhook-signature"].starts_with("v1,"));
}
