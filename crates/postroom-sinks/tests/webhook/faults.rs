//! Receivers that misbehave, and messages that would.

use super::{answered, error_of, sink};
use crate::http_receiver::{Answer, Receiver};
use crate::messages::{deliver_one, message};
use postroom_core::{Outcome, RawJson, Sink as _};
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn fault_29_each_status_is_met_as_its_class_asks() {
    for status in ["200 OK", "201 Created", "204 No Content"] {
        assert_eq!(answered(status, "").await, Outcome::Delivered, "{status}");
    }
    for status in ["408 x", "409 x", "423 x", "425 x", "429 x", "500 x", "502 x", "503 x", "599 x"]
    {
        assert!(
            matches!(answered(status, "").await, Outcome::Retry { after: None, .. }),
            "{status}"
        );
    }
    for status in ["401 x", "403 x", "404 x", "301 x", "302 x", "307 x", "308 x"] {
        assert!(matches!(answered(status, "").await, Outcome::Refuse { .. }), "{status}");
    }
    for status in ["400 x", "413 x", "418 x", "422 x"] {
        assert!(matches!(answered(status, "").await, Outcome::Reject { .. }), "{status}");
    }
    assert!(matches!(answered("410 x", "").await, Outcome::Gone { .. }));
}

#[tokio::test]
async fn fault_29_a_redirect_is_never_followed() {
    let target = Receiver::answering("200 OK", "").await;
    let location = format!("location: http://{}/\r\n", target.address);
    let outcome = answered("301 Moved Permanently", &location).await;
    assert!(error_of(&outcome).contains("never followed"), "{outcome:?}");
    assert!(target.requests().is_empty());
}

#[tokio::test]
async fn fault_28_retry_after_is_obeyed_within_an_hour() {
    for (value, after) in [
        ("12", Some(12)),
        ("1000000000000", Some(3600)),
        ("-1", None),
        ("1e12", None),
        ("rubbish", None),
    ] {
        let outcome = answered("429 Too Many Requests", &format!("retry-after: {value}\r\n")).await;
        let Outcome::Retry { after: got, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(got, after.map(Duration::from_secs), "{value}");
    }
}

#[tokio::test]
async fn an_error_text_names_host_and_status_and_nothing_else() {
    let receiver = Receiver::start(Answer::Bytes(
        b"HTTP/1.1 500 hunter2\r\ncontent-length: 7\r\n\r\nhunter2".to_vec(),
    ))
    .await;
    let outcome = deliver_one(&sink(&receiver.url(), Duration::from_secs(5)), message("e-1")).await;
    assert_eq!(
        error_of(&outcome),
        format!("{} answered 500 Internal Server Error", receiver.address)
    );
}

#[tokio::test]
async fn nobody_listening_is_worth_another_try_and_the_error_keeps_the_urls_secrets() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let sink = sink(&format!("http://{address}/T0/s3cret?key=s3cret"), Duration::from_secs(5));
    let outcome = deliver_one(&sink, message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }));
    let error = error_of(&outcome);
    assert!(error.contains("cannot connect to") && error.contains("refused"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
    let probe = sink.probe().await.unwrap_err().to_string();
    assert!(probe.contains("cannot connect to") && !probe.contains("s3cret"), "{probe}");
}

#[tokio::test]
async fn fault_31_a_receiver_that_never_answers_costs_its_timeout_and_no_more() {
    let receiver = Receiver::start(Answer::Silence).await;
    let started = Instant::now();
    let outcome =
        deliver_one(&sink(&receiver.url(), Duration::from_millis(200)), message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert!(error_of(&outcome).ends_with("within 200ms"), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_receiver_that_hangs_up_is_worth_another_try() {
    let receiver = Receiver::start(Answer::HangUp).await;
    let outcome = deliver_one(&sink(&receiver.url(), Duration::from_secs(5)), message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert!(error_of(&outcome).starts_with("no answer from"), "{outcome:?}");
}

#[tokio::test]
async fn fault_30_a_body_without_end_is_cut_by_size() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n".to_vec();
    let receiver = Receiver::start(Answer::Flood(head)).await;
    let started = Instant::now();
    let outcome =
        deliver_one(&sink(&receiver.url(), Duration::from_secs(120)), message("e-1")).await;
    assert_eq!(outcome, Outcome::Delivered, "the status was the receiver's word");
    assert!(started.elapsed() < Duration::from_secs(60), "cut by size, not by time");
    assert!(*receiver.flooded.lock().unwrap() < 64 << 20);
}

/// A kilobyte that unpacks to a megabyte, sent without end.
#[tokio::test]
async fn fault_30_a_packed_body_is_never_unpacked() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    // The start of a gzip stream, in a chunk that never ends.
    let packed = [&head[..], b"ffffffff\r\n", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff]].concat();
    let receiver = Receiver::start(Answer::Flood(packed)).await;
    let outcome =
        deliver_one(&sink(&receiver.url(), Duration::from_secs(30)), message("e-1")).await;
    assert_eq!(outcome, Outcome::Delivered);
    assert!(*receiver.flooded.lock().unwrap() < 64 << 20);
    assert!(!receiver.requests()[0].headers.contains_key("accept-encoding"));
}

/// Headers without end are no answer.
#[tokio::test]
async fn fault_30_a_head_without_end_is_cut() {
    let receiver = Receiver::start(Answer::Flood(b"HTTP/1.1 500 ".to_vec())).await;
    let outcome =
        deliver_one(&sink(&receiver.url(), Duration::from_secs(30)), message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert!(error_of(&outcome).len() < 500, "{outcome:?}");
    assert!(*receiver.flooded.lock().unwrap() < 64 << 20);
}

#[tokio::test]
async fn fault_30_a_body_that_trickles_is_cut_by_time() {
    let head = b"HTTP/1.1 503 Busy\r\ncontent-length: 100000\r\n\r\n".to_vec();
    let receiver = Receiver::start(Answer::Trickle(head)).await;
    let started = Instant::now();
    let outcome =
        deliver_one(&sink(&receiver.url(), Duration::from_millis(300)), message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn fault_35_headers_that_could_smuggle_are_rejected_and_nothing_is_sent() {
    let receiver = Receiver::answering("200 OK", "").await;
    let sink = sink(&receiver.url(), Duration::from_secs(5));
    for headers in [
        json!({"Host": "evil"}),
        json!({"content-length": 0}),
        json!({"Transfer-Encoding": "chunked"}),
        json!({"connection": "close"}),
        json!({"x": "a\r\nhost: evil"}),
        json!({"x": "a\nb"}),
        json!({"x": "nul\u{0}"}),
        json!({"bad name": "x"}),
        json!({"bad\r\nname": "x"}),
        json!({"": "x"}),
    ] {
        let mut sent = message("e-1");
        sent.headers = Some(RawJson::trusted(headers.to_string()));
        let outcome = deliver_one(&sink, sent).await;
        assert!(matches!(outcome, Outcome::Reject { .. }), "{headers}: {outcome:?}");
        assert!(!error_of(&outcome).contains(['\r', '\n']), "{outcome:?}");
    }
    let mut sent = message("e-1\r\nx: y");
    assert!(matches!(deliver_one(&sink, sent.clone()).await, Outcome::Reject { .. }));
    sent.event_id = "e-1".to_owned();
    sent.headers = Some(RawJson::trusted("[1]"));
    assert!(matches!(deliver_one(&sink, sent).await, Outcome::Reject { .. }));
    assert!(receiver.requests().is_empty());
}

#[tokio::test]
async fn fault_31_a_tls_handshake_that_stalls_costs_its_timeout_and_no_more() {
    let receiver = Receiver::start(Answer::Silence).await;
    let url = format!("https://{}/", receiver.address);
    let started = Instant::now();
    let outcome = deliver_one(&sink(&url, Duration::from_millis(300)), message("e-1")).await;
    assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}");
    assert!(error_of(&outcome).ends_with("within 300ms"), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(receiver.requests().is_empty());
}
