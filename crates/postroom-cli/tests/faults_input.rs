//! Input that makes no sense, at the library, the command line and the table itself.

use crate::faults_outbox::{Outbox, SOON, arrivals, webhook};
use postroom::{EnqueueError, NewMessage, enqueue};
use postroom_core::{Filter, MessageId};
use postroom_testkit::Receiver;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

fn message() -> NewMessage {
    NewMessage::new("webhook:a", "order.created.v1").json(&1)
}

async fn count(outbox: &Outbox) -> usize {
    outbox.store.list(&Filter { limit: 100, ..Filter::default() }).await.unwrap().len()
}

#[tokio::test]
async fn fault_39_bad_input_is_refused_at_the_library_and_the_relay_is_unaffected() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let _relay = outbox.relay("", &webhook(&receiver, ""));
    let hundred_mb = [b"\"".to_vec(), vec![b'x'; 100 << 20], b"\"".to_vec()].concat();
    let bad = [
        (message().raw(vec![b'"', 0xff, b'"']), "payload is not valid UTF-8"),
        (message().raw("\"\\u0000\""), "\\u0000"),
        (message().raw("1e400"), "out of range"),
        (message().raw("[".repeat(10_000) + &"]".repeat(10_000)), "recursion limit"),
        (message().raw("{oops"), "payload is not acceptable JSON"),
        (message().raw(hundred_mb), "at most 262144 are allowed"),
        (message().stream("s".repeat(201)), "source_stream_id has 201 characters"),
        (message().event_id(""), "source_event_id is empty"),
        (message().tenant("a\0b"), "tenant_id holds a NUL"),
        (message().headers(&[1]), "headers must be a JSON object"),
    ];
    let mut client = outbox.client().await;
    let mut tx = client.transaction().await.unwrap();
    for (message, reason) in bad {
        let error = enqueue(&mut tx, message).await.unwrap_err();
        assert!(matches!(error, EnqueueError::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    // Nothing reached the database, so the transaction is as good as before.
    let good = enqueue(&mut tx, message()).await.unwrap().into_id();
    tx.commit().await.unwrap();
    outbox.wait_for(&good, "SENT").await;
    assert_eq!((count(&outbox).await, receiver.count()), (1, 1));
}

#[tokio::test]
async fn fault_39_bad_input_is_refused_at_the_command_line() {
    let outbox = Outbox::postgres().await;
    let url = outbox.url();
    let start = ["enqueue", "--database", &url, "--to", "webhook:a", "--type", "t", "--payload"];
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let long = "s".repeat(201);
    let large = format!("\"{}\"", "x".repeat(100_000));
    for (args, reason) in [
        (vec!["\"\\u0000\""], "\\u0000"),
        (vec!["1e400"], "out of range"),
        (vec![deep.as_str()], "recursion limit"),
        (vec!["{oops"], "payload is not acceptable JSON"),
        (vec!["1", "--stream", &long], "source_stream_id has 201 characters"),
        (vec!["1", "--headers", &large], "at most 65536 are allowed"),
    ] {
        let answer = outbox.folder().run(&[&start[..], &args].concat());
        assert_eq!(answer.code, 2, "{reason}: {}", answer.stderr);
        assert!(answer.stderr.contains(reason), "{}", answer.stderr);
        assert!(answer.stderr.len() < 2_000, "it does not repeat what it was given");
    }
    let mut command = outbox.folder().command(&start);
    let output = command.arg(OsStr::from_bytes(b"\"\xff\"")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(count(&outbox).await, 0);
}

#[tokio::test]
async fn fault_40_the_same_event_twice_is_one_message_with_its_first_payload() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let url = outbox.url();
    let by_command = |payload: &str| {
        let args = ["enqueue", "--database", &url, "--to", "webhook:a", "--type", "t", "--json"];
        let event = ["--stream", "order-1", "--event-id", "e-1", "--payload", payload];
        outbox.folder().run(&[&args[..], &event].concat()).json()
    };
    let first = by_command("{\"n\": 1}");
    assert_eq!(first["new"], true);
    let id: MessageId = first["id"].as_str().unwrap().parse().unwrap();
    let again = by_command("{\"n\": 2}");
    assert_eq!((&again["id"], &again["new"]), (&first["id"], &json!(false)));

    let mut client = outbox.client().await;
    let mut tx = client.transaction().await.unwrap();
    let repeated = message().stream("order-1").event_id("e-1").json(&json!({ "n": 3 }));
    let by_library = enqueue(&mut tx, repeated).await.unwrap();
    assert_eq!((by_library.id(), by_library.is_new()), (&id, false));
    tx.commit().await.unwrap();
    let by_sql = "SELECT id, is_new FROM core_outbox.enqueue('webhook:a', 't', '{\"n\": 4}', \
                  stream => 'order-1', event_id => 'e-1')";
    let row = client.query_one(by_sql, &[]).await.unwrap();
    assert_eq!((MessageId::Uuid(row.get(0)), row.get::<_, bool>(1)), (id.clone(), false));

    let _relay = outbox.relay("", &webhook(&receiver, ""));
    outbox.wait_for(&id, "SENT").await;
    // Nor is it delivered again when it comes once more after that.
    assert_eq!(by_command("{\"n\": 5}")["new"], false);
    let other = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(other, "SENT").await;
    assert_eq!(arrivals(&receiver)["e-1"], 1);
    assert_eq!(receiver.requests()[0].json(), json!({ "n": 1 }));
    assert_eq!(count(&outbox).await, 2);
}

#[tokio::test]
async fn fault_41_attempts_below_one_and_times_without_end_are_refused_everywhere() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let _relay = outbox.relay("", &webhook(&receiver, ""));
    let url = outbox.url();
    let start = ["enqueue", "--database", &url, "--to", "webhook:a", "--type", "t"];
    for args in [
        ["--payload", "1", "--max-attempts", "0"],
        ["--payload", "1", "--max-attempts", "-1"],
        ["--payload", "1", "--due-at", "infinity"],
        ["--payload", "1", "--due-at", "-infinity"],
    ] {
        let answer = outbox.folder().run(&[&start[..], &args].concat());
        assert_eq!(answer.code, 2, "{args:?}: {}", answer.stderr);
    }
    let client = outbox.client().await;
    for (column, value) in [
        ("max_attempts", "0"),
        ("max_attempts", "-1"),
        ("attempts", "-1"),
        ("due_at", "'infinity'"),
        ("due_at", "'-infinity'"),
    ] {
        let insert = format!(
            "INSERT INTO core_outbox.integration_outbox (source_stream_id, source_event_id, \
             integration_type, event_type, payload, {column}) \
             VALUES ('s', 'e', 'webhook:a', 't', '1', {value})"
        );
        assert_refused(&client, &insert, CHECK).await;
    }
    for (argument, code) in [
        ("max_attempts => 0", ARGUMENT),
        ("max_attempts => -1", ARGUMENT),
        ("due_at => 'infinity'", CHECK),
    ] {
        let call = format!("SELECT core_outbox.enqueue('webhook:a', 't', '1', {argument})");
        assert_refused(&client, &call, code).await;
    }
    // What was there before cannot become so either.
    let id = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(id, "SENT").await;
    for change in ["max_attempts = 0", "due_at = 'infinity'", "due_at = '-infinity'"] {
        let update = format!("UPDATE core_outbox.integration_outbox SET {change}");
        assert_refused(&client, &update, CHECK).await;
    }
    receiver.wait_for(1, SOON).await;
    assert_eq!((count(&outbox).await, receiver.count()), (1, 1));
}

/// A check constraint's refusal, and the function's own.
const CHECK: &str = "23514";
const ARGUMENT: &str = "22023";

async fn assert_refused(client: &tokio_postgres::Client, sql: &str, expected: &str) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let code = error.code().expect("the server's word").code();
    assert_eq!(code, expected, "{sql}: {error}");
}
