//! What a record looks like to those who read it.

use super::{Topic, header, topic};
use postroom_core::{Message, Outcome, RawJson};
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{KafkaRecord, python_with, skip};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const PYTHON: &[&str] = &["cloudevents==2.2.0"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_is_the_event_id_and_the_order_that_of_the_batch() {
    let test = "the_key_is_the_event_id_and_the_order_that_of_the_batch";
    let Some(topic) = topic(test).await else { return };
    let sink = topic.with(json!({}));
    let batch: Vec<_> = (0..300).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 300]);
    let records = topic.records().await;
    let keys: Vec<_> = records.iter().map(|record| record.key.clone().unwrap()).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected);
    assert_eq!(header(&records[0], "content-type"), Some("application/json"));
    assert_eq!(header(&records[0], "idempotency-key"), Some("e-0"));
    let now = milliseconds_now();
    assert!((now - records[0].timestamp).abs() < 60_000, "the time is when it was sent");
}

fn milliseconds_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_one_ordering_key_share_a_partition_and_keep_their_order() {
    let test = "messages_of_one_ordering_key_share_a_partition_and_keep_their_order";
    let Some(topic) = topic(test).await else { return };
    let topic = Topic::on(topic.kafka(), 4).await;
    let sink = topic.with(json!({"key": "ordering_key"}));
    let of = |account: usize, n: usize| {
        let mut message = message(&format!("e-{account}-{n}"));
        message.ordering_key = Some(format!("account-{account}"));
        message
    };
    let batch: Vec<Message> = (0..200).map(|n| of(n % 8, n)).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 200]);
    let records = topic.records().await;
    for account in 0..8 {
        let key = format!("account-{account}");
        let own: Vec<_> =
            records.iter().filter(|record| record.key.as_deref() == Some(&key)).collect();
        assert!(own.iter().all(|record| record.partition == own[0].partition), "{own:?}");
        let ids: Vec<_> = own.iter().map(|record| header(record, "postroom-event-id")).collect();
        let expected: Vec<_> =
            batch.iter().filter(|one| one.ordering_key.as_ref() == Some(&key)).collect();
        let expected: Vec<_> = expected.iter().map(|one| Some(one.event_id.as_str())).collect();
        assert_eq!(ids, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_compressed_is_read_by_others() {
    let Some(topic) = topic("what_is_compressed_is_read_by_others").await else { return };
    for codec in ["lz4", "zstd", "snappy", "none"] {
        let sink = topic.with(json!({"compression": codec}));
        let batch: Vec<_> = (0..20).map(|n| message(&format!("{codec}-{n}"))).collect();
        assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 20], "{codec}");
    }
    let records = topic.records().await;
    assert_eq!(records.len(), 80);
    assert!(records.iter().all(|record| record.value.contains("\"sum\": 12.5")), "{records:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_header_passes_and_none_can_pose_as_ours() {
    let Some(topic) = topic("any_header_passes_and_none_can_pose_as_ours").await else { return };
    let mut sent = message("e-1");
    sent.headers = Some(RawJson::trusted(
        r#"{"a":"b\r\nc","é":"ü","":"","Content-Type":"text/html","idempotency-key":"other",
            "ce_id":"other","n":1.50,"traceparent":"00-a"}"#,
    ));
    let sink = topic.with(json!({}));
    assert_eq!(deliver_all(&*sink, &[sent]).await, [Outcome::Delivered]);
    let record = topic.records().await.remove(0);
    for (name, value) in [
        ("a", Some("b\r\nc")),
        ("é", Some("ü")),
        ("", Some("")),
        ("Content-Type", None),
        ("content-type", Some("application/json")),
        ("idempotency-key", Some("e-1")),
        ("ce_id", None),
        ("traceparent", Some("00-a")),
    ] {
        assert_eq!(header(&record, name), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envelope_has_the_main_fields_around_the_payload() {
    let test = "an_envelope_has_the_main_fields_around_the_payload";
    let Some(topic) = topic(test).await else { return };
    let sink = topic.with(json!({"format": "envelope", "idempotency_key": "message_id"}));
    let sent = message("e-1");
    assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    let record = topic.records().await.remove(0);
    let envelope: Value = serde_json::from_str(&record.value).unwrap();
    assert_eq!((&envelope["id"], &envelope["payload"]["sum"]), (&json!("e-1"), &json!(12.5)));
    assert_eq!(record.key.as_deref(), Some("e-1"));
    assert_eq!(header(&record, "idempotency-key"), Some(sent.id.to_string().as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_events_are_read_by_the_official_sdk_in_both_modes() {
    let test = "cloud_events_are_read_by_the_official_sdk_in_both_modes";
    let Some(topic) = topic(test).await else { return };
    let mut sent = message("e-1");
    sent.payload = RawJson::trusted("{\"sum\": 12.5, \"name\": \"Zoë\"}");
    sent.tenant_id = Some("Müller & Söhne 100%".to_owned());
    for format in ["cloudevents-binary", "cloudevents"] {
        let sink = topic.with(json!({"format": format}));
        assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    }
    let records = topic.records().await;
    assert_eq!(header(&records[0], "content-type"), Some("application/json"));
    assert_eq!(header(&records[0], "ce_id"), Some("e-1"));
    assert_eq!(header(&records[0], "ce_datacontenttype"), None);
    assert_eq!(header(&records[1], "content-type"), Some("application/cloudevents+json"));
    assert_eq!(header(&records[1], "ce_id"), None);
    let events = match by_python(&records) {
        Ok(events) => events,
        Err(error) => return skip(&format!("kafka: {test}"), &format!("{error:#}")),
    };
    for event in events {
        for (name, value) in [
            ("specversion", "1.0"),
            ("id", "e-1"),
            ("source", "shop"),
            ("type", "order.placed.v1"),
            ("subject", "order-1"),
            ("datacontenttype", "application/json"),
            ("tenantid", "Müller & Söhne 100%"),
            ("correlationid", "c-1"),
            ("causationid", "k-1"),
        ] {
            assert_eq!(event["attributes"][name], value, "{name} in {event}");
        }
        assert!(event["attributes"]["time"].is_string(), "{event}");
        assert_eq!(event["data"], json!({"sum": 12.5, "name": "Zoë"}), "{event}");
    }
}

/// What the SDK makes of each record.
fn by_python(records: &[KafkaRecord]) -> anyhow::Result<Vec<Value>> {
    let records: Vec<_> = records
        .iter()
        .map(|record| json!({"key": record.key, "value": record.value, "headers": record.headers}))
        .collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/cloud_event.py");
    let mut command = Command::new(python_with(PYTHON)?);
    let mut child =
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(json!(records).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}
