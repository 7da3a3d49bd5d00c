//! The slack sink. Slack itself cannot be had for tests: a stand-in answers as Slack's
//! documentation says, over a real socket.

use crate::destination::{refused, rejected, sink};
use crate::http_receiver::{Answer, Receiver, Request};
use crate::page;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TOKEN: &str = "xoxb-hunter2";

/// A stand-in for Slack, and what it has posted.
struct Workspace {
    receiver: Receiver,
    posted: Arc<Mutex<Vec<Value>>>,
}

async fn start() -> Workspace {
    let posted = Arc::<Mutex<Vec<Value>>>::default();
    let kept = Arc::clone(&posted);
    let answer = Answer::By(Arc::new(move |request| {
        let answer = api(request);
        if request.line.starts_with("POST /api/chat.postMessage ") && answer["ok"] == true {
            kept.lock().unwrap().push(serde_json::from_str(&request.body).unwrap());
        }
        http("200 OK", "", &answer.to_string())
    }));
    Workspace { receiver: Receiver::start(answer).await, posted }
}

/// Slack's Web API: always 200, and `ok` says how it went.
fn api(request: &Request) -> Value {
    let failed = |error: &str| json!({"ok": false, "error": error});
    if request.headers.get("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return failed("invalid_auth");
    }
    if request.line.starts_with("POST /api/auth.test ") {
        return json!({"ok": true});
    }
    let Ok(body) = serde_json::from_str::<Value>(&request.body) else {
        return failed("invalid_json");
    };
    let text = body["text"].as_str().unwrap_or_default();
    match body["channel"].as_str() {
        Some("#orders") if text.chars().count() > 40_000 => failed("msg_too_long"),
        Some("#orders") if text.is_empty() && body["blocks"].is_null() => failed("no_text"),
        Some("#orders") => json!({"ok": true, "ts": "1503435956.000247"}),
        Some("#private") => failed("not_in_channel"),
        _ => failed("channel_not_found"),
    }
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

impl Workspace {
    fn sink(&self, address: SocketAddr, options: Value) -> Arc<dyn Sink> {
        let mut all = json!({"token": TOKEN, "api_url": format!("http://{address}/api/")});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink("slack:orders", all)
    }

    fn posted(&self) -> Vec<Value> {
        self.posted.lock().unwrap().clone()
    }
}

impl SinkHarness for Workspace {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn server(&self) -> SocketAddr {
        self.receiver.address
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        // A block is no place for `&quot;`, so the text holds JSON as Slack shows it.
        Workspace::sink(self, address, json!({"text": "{{ payload|tojson }}"}))
    }

    async fn received(&self) -> Vec<Received> {
        let posted = self.posted().into_iter();
        posted
            .map(|body| {
                let payload = body["metadata"]["event_payload"].as_object().unwrap().clone();
                Received {
                    key: payload["idempotency-key"].as_str().unwrap().to_owned(),
                    body: body["text"].as_str().unwrap().to_owned(),
                    attributes: payload
                        .into_iter()
                        .map(|(name, value)| (name, value.as_str().unwrap().to_owned()))
                        .collect(),
                }
            })
            .collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Ok(Message { payload: RawJson::trusted("no JSON"), ..message("bad") })
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(50_000)));
        Ok(Message { payload, ..message("large") })
    }
}

mod contract {
    use super::start;

    postroom_testkit::sink_contract_tests!(start);
}

#[tokio::test]
async fn blocks_are_a_layout_that_values_cannot_change_and_nobody_is_mentioned() {
    let slack = start().await;
    let sink = slack.sink(
        slack.receiver.address,
        json!({
            "text": "Order of {{ payload.name }} <https://shop.example|Shop>",
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": "Order {{ payload.id }}"}},
                {"type": "section", "text": {"type": "mrkdwn", "text": "*{{ payload.name }}*"}},
                {"type": "divider"},
            ],
        }),
    );
    let payload = json!({"id": 7, "name": "\"}, <!channel> & \"co\""});
    let sent = Message { payload: RawJson::trusted(payload.to_string()), ..message("e-1") };
    assert_eq!(deliver_all(&*sink, &[sent]).await, [Outcome::Delivered]);
    let body = slack.posted().remove(0);
    let name = "\"}, &lt;!channel&gt; &amp; \"co\"";
    assert_eq!(body["text"], format!("Order of {name} <https://shop.example|Shop>"));
    assert_eq!(body["blocks"][0]["text"]["text"], "Order 7");
    assert_eq!(body["blocks"][1]["text"]["text"], format!("*{name}*"));
    assert_eq!(body["blocks"][2], json!({"type": "divider"}));
    assert_eq!(body["channel"], "#orders");
    assert_eq!(body["metadata"]["event_type"], "postroom_message");
}

#[tokio::test]
async fn what_concerns_the_channel_or_the_token_pauses_the_lane() {
    let slack = start().await;
    let at = slack.receiver.address;
    for (options, expected) in [
        (json!({"text": "x", "channel": "#nowhere"}), "channel_not_found"),
        (json!({"text": "x", "channel": "#private"}), "not_in_channel"),
        (json!({"text": "x", "token": "xoxb-hunter3"}), "invalid_auth"),
    ] {
        let sink = slack.sink(at, options);
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        let error = refused(&outcomes[0]);
        assert!(error.contains(expected) && !error.contains("hunter"), "{error}");
        assert_eq!(sink.probe().await.is_err(), expected == "invalid_auth", "{expected}");
    }
    let sink = slack.sink(at, json!({"text": "{% if payload.x is defined %}x{% endif %}"}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(rejected(&outcomes[0]).contains("no_text"), "{outcomes:?}");
    assert!(slack.posted().is_empty());
}

/// Slack repeats the message in its answer, in which a character can take twelve bytes.
#[tokio::test]
async fn a_long_answer_is_read_to_its_end() {
    let message_again = json!({"text": "\u{1f980}".repeat(50 * 1024)});
    let answer = json!({"message": message_again, "ok": true}).to_string();
    assert!(answer.len() > 200 * 1024 && answer.ends_with("\"ok\":true}"));
    let receiver = Receiver::start(Answer::Bytes(http("200 OK", "", &answer))).await;
    let api_url = format!("http://{}/api/", receiver.address);
    let options = json!({"token": TOKEN, "api_url": api_url, "text": "x"});
    let sink = sink("slack:orders", options);
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
}

async fn by_webhook(status: &str, headers: &str, body: &str) -> (Outcome, Vec<Request>) {
    let receiver = Receiver::start(Answer::Bytes(http(status, headers, body))).await;
    let url = format!("http://{}/services/T0/B0/s3cret", receiver.address);
    let sink = sink("slack:alerts", json!({"url": url, "text": "Order {{ payload.event }}"}));
    let outcome = deliver_all(&*sink, &[message("e-1")]).await.remove(0);
    let shown = format!("{outcome:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    (outcome, receiver.requests())
}

#[tokio::test]
async fn an_incoming_webhook_says_ok_or_what_is_wrong() {
    let (outcome, requests) = by_webhook("200 OK", "", "ok").await;
    assert_eq!(outcome, Outcome::Delivered);
    assert_eq!(requests[0].line, "POST /services/T0/B0/s3cret HTTP/1.1");
    let body: Value = serde_json::from_str(&requests[0].body).unwrap();
    assert_eq!(body, json!({"text": "Order e-1"}));

    refused(&by_webhook("404 Not Found", "", "no_service").await.0);
    refused(&by_webhook("410 Gone", "", "channel_is_archived").await.0);
    refused(&by_webhook("403 Forbidden", "", "action_prohibited").await.0);
    refused(&by_webhook("302 Found", "location: http://evil.test/\r\n", "").await.0);
    rejected(&by_webhook("400 Bad Request", "", "invalid_payload").await.0);
    for (status, body) in [("500 x", "rollup_error"), ("200 OK", "<html>"), ("503 x", "")] {
        let (outcome, _) = by_webhook(status, "", body).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn fault_28_a_limit_is_obeyed_within_an_hour() {
    for (value, after) in [("30", Some(30)), ("1000000000000", Some(3_600)), ("-1", None)] {
        let headers = format!("retry-after: {value}\r\n");
        let (outcome, _) = by_webhook("429 Too Many Requests", &headers, "rate_limited").await;
        let Outcome::Retry { after: found, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(found, after.map(Duration::from_secs), "{value}");
    }
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let receiver = Receiver::start(Answer::Bytes(http("200 OK", "", "ok"))).await;
    page::deliver("slack", json!({"url": receiver.url()})).await;
    let body: Value = serde_json::from_str(&receiver.requests()[0].body).unwrap();
    assert_eq!(body, json!({"text": "Order o-1 failed"}));
}
