//! Rows whose content or destination makes no sense, and what is recorded of failures.

use crate::outbox::{Outbox, SOON, message, on_stores, patient_lane};
use crate::script::{Act, Script};
use postroom_core::{MessageId, Outcome, Status};
use postroom_relay::{Pass, Settings};
use postroom_sinks::MemorySink;
use postroom_testkit::{eventually, skip};
use std::time::Duration;
use uuid::Uuid;

/// What no error, log, metric or health page may show.
const SECRET: &str = "4111-1111-1111-1111";

on_stores! { [mariadb memory postgres sqlite]:
    an_oversized_payload_is_dead_with_its_reason_and_never_offered
    an_error_is_recorded_up_to_its_limit
    what_no_lane_serves_is_left_alone_and_shown
}

on_stores! { [postgres]:
    fault_48_a_payload_that_cannot_become_text_is_dead_alone
    fault_48_the_same_is_true_of_one_that_looks_small
    fault_48_a_row_that_is_damaged_is_dead_alone
    fault_48_payloads_that_grow_a_thousandfold_are_dead_and_hold_up_nobody
}

on_stores! { [memory postgres]:
    fault_48_headers_over_their_limit_are_dead_alone
    headers_that_are_no_object_are_dead_with_their_reason_and_never_offered
    no_payload_is_in_what_is_recorded_or_shown
}

async fn an_oversized_payload_is_dead_with_its_reason_and_never_offered(outbox: Outbox) {
    let sink = MemorySink::new();
    let large = outbox.put(message("memory:a").json(&"x".repeat(101))).await;
    let small = outbox.put(message("memory:a").json(&"x".repeat(90))).await;
    let settings = Settings { payload_limit: 100, ..Settings::default() };
    let relay = outbox.relay(settings, vec![patient_lane("memory:a", sink.clone())]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 2, sent: 1, dead: 1, ..Pass::default() });
    let dead = outbox.record(&large).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 0));
    let error = dead.last_error.unwrap();
    assert!(error.contains("over the limit of 100 bytes"), "{error}");
    assert_eq!(dead.message.payload.len(), 103, "the content stays as it is");
    assert_eq!(sink.delivered()[0].id, small);
    assert_eq!(sink.attempts(), 1);
}

/// Inserts a row as someone does who knows the table and nothing of limits.
async fn insert(outbox: &Outbox, integration: &str, payload: &str, headers: &str) -> MessageId {
    let row = [
        ("source_stream_id", "order-1"),
        ("source_event_id", &*Uuid::now_v7().to_string()),
        ("integration_type", integration),
        ("event_type", "order.created.v1"),
        ("payload", payload),
        ("headers", headers),
    ];
    outbox.insert(&row).await
}

/// A payload that is a list of numbers: 16 bytes each in the table, 131,072 as text.
fn numbers(count: usize) -> String {
    format!("[{}]", vec!["1e131071"; count].join(","))
}

async fn fault_48_a_payload_that_cannot_become_text_is_dead_alone(outbox: Outbox) {
    assert_dead_alone(outbox, false).await;
}

async fn fault_48_the_same_is_true_of_one_that_looks_small(outbox: Outbox) {
    assert_dead_alone(outbox, true).await;
}

async fn assert_dead_alone(outbox: Outbox, looks_small: bool) {
    // Over 1 GB as text, which PostgreSQL refuses to make.
    let huge = insert(&outbox, "memory:a", &numbers(8_200), "{}").await;
    if looks_small {
        // As a parcel counts that was made of compressed content.
        let client = outbox.database().client().await;
        let small = "UPDATE core_outbox.parcel SET bytes = 100";
        client.batch_execute(small).await.unwrap();
    }
    let (ours, others) = (MemorySink::new(), MemorySink::new());
    let lanes =
        vec![patient_lane("memory:a", ours.clone()), patient_lane("memory:b", others.clone())];
    let relay = outbox.start(Settings::default(), lanes);
    for integration in ["memory:a", "memory:b"] {
        let ids = outbox.enqueue(integration, 20).await;
        outbox.wait_for_all(&ids, "SENT").await;
    }
    let dead = outbox.wait_for(&huge, "DEAD").await;
    assert_eq!(dead.message.attempts, 0);
    let error = dead.last_error.unwrap();
    assert!(error.contains("over the limit of 262144 bytes"), "{error}");
    relay.stop().await.unwrap();
    assert_eq!((ours.attempts(), others.attempts()), (20, 20), "it was never offered");
}

async fn fault_48_a_row_that_is_damaged_is_dead_alone(outbox: Outbox) {
    let client = outbox.database().client().await;
    if client.batch_execute("CREATE EXTENSION pg_surgery").await.is_err() {
        let test = "fault_48_a_row_that_is_damaged_is_dead_alone";
        return skip(test, "this server has no pg_surgery, which damages a row");
    }
    let noise: String = (0..3_000).map(|_| Uuid::new_v4().to_string()).collect();
    let damaged = outbox.put(message("memory:a").json(&noise)).await;
    let lose_payload = "DO $$ DECLARE toast regclass; BEGIN \
        SELECT reltoastrelid INTO toast FROM pg_class \
        WHERE oid = 'core_outbox.integration_outbox'::regclass; \
        EXECUTE format('SELECT heap_force_kill(%L::regclass, ARRAY(SELECT ctid FROM %s))', \
                       toast, toast); END $$";
    client.batch_execute(lose_payload).await.unwrap();
    let sink = MemorySink::new();
    let relay = outbox.start(Settings::default(), vec![patient_lane("memory:a", sink.clone())]);
    let ids = outbox.enqueue("memory:a", 5).await;
    outbox.wait_for_all(&ids, "SENT").await;
    eventually("the damaged one to be DEAD", SOON, async || {
        let state = "SELECT last_error FROM core_outbox.messages WHERE id = $1 AND status = 'DEAD'";
        let error: String = client.query_opt(state, &[&damaged.as_uuid()]).await.unwrap()?.get(0);
        assert!(
            error.contains("cannot be read (PostgreSQL answers with the error XX001)"),
            "{error}"
        );
        Some(())
    })
    .await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 5);
}

async fn fault_48_payloads_that_grow_a_thousandfold_are_dead_and_hold_up_nobody(outbox: Outbox) {
    // 197 MB each as text, which PostgreSQL makes one after the other if it is asked to.
    let mut large = Vec::new();
    for _ in 0..50 {
        large.push(insert(&outbox, "memory:a", &numbers(1_500), "{}").await);
    }
    let others = MemorySink::new();
    let lanes = vec![patient_lane("memory:a", MemorySink::new()), patient_lane("memory:b", others)];
    let relay = outbox.start(Settings::default(), lanes);
    let ids = outbox.enqueue("memory:b", 20).await;
    let sent = tokio::time::timeout(Duration::from_secs(20), outbox.wait_for_all(&ids, "SENT"));
    sent.await.expect("another lane is not held up");
    outbox.wait_for_all(&large, "DEAD").await;
    relay.stop().await.unwrap();
}

async fn fault_48_headers_over_their_limit_are_dead_alone(outbox: Outbox) {
    let headers = format!("{{\"note\": \"{}\"}}", "x".repeat(70_000));
    let sink = MemorySink::new();
    let relay = |settings| outbox.relay(settings, vec![patient_lane("memory:a", sink.clone())]);
    // They may have as much as a payload, 256 KiB by default.
    insert(&outbox, "memory:a", "{}", &headers).await;
    assert_eq!(relay(Settings::default()).tick(10).await.unwrap().sent, 1);

    let large = insert(&outbox, "memory:a", "{}", &headers).await;
    let small = outbox.put(message("memory:a")).await;
    let relay = relay(Settings { payload_limit: 1_000, ..Settings::default() });
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 2, sent: 1, dead: 1, ..Pass::default() });
    let dead = outbox.record(&large).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 0));
    let error = dead.last_error.unwrap();
    assert!(error.contains("the headers are over the limit of 65536 bytes"), "{error}");
    assert_eq!(outbox.record(&small).await.status, "SENT");
}

async fn headers_that_are_no_object_are_dead_with_their_reason_and_never_offered(outbox: Outbox) {
    let id = insert(&outbox, "memory:a", "{}", "[1, 2]").await;
    let sink = MemorySink::new();
    let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink.clone())]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 1, dead: 1, ..Pass::default() });
    let dead = outbox.record(&id).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 0));
    let error = dead.last_error.unwrap();
    assert!(error.contains("the headers are no JSON object"), "{error}");
    assert_eq!(sink.attempts(), 0);
}

async fn an_error_is_recorded_up_to_its_limit(outbox: Outbox) {
    let long = "é\0".repeat(10_000);
    let (failing, rejecting) = (MemorySink::new(), MemorySink::new());
    failing.fail_next(1, Outcome::retry(long.clone()));
    rejecting.fail_next(1, Outcome::reject(long));
    let failed = outbox.put(message("memory:failing")).await;
    let dead = outbox.put(message("memory:rejecting")).await;
    let lanes =
        vec![patient_lane("memory:failing", failing), patient_lane("memory:rejecting", rejecting)];
    let pass = outbox.relay(Settings::default(), lanes).tick(10).await.unwrap();
    assert_eq!((pass.failed, pass.dead), (1, 1));
    for record in outbox.records(&[failed, dead]).await {
        assert_eq!(record.last_error.unwrap(), "é".repeat(5_000));
    }
}

async fn no_payload_is_in_what_is_recorded_or_shown(outbox: Outbox) {
    let names = ["memory:stalls", "memory:silent", "memory:panics", "memory:large", "memory:dead"];
    let mut ids = Vec::new();
    for name in &names[..4] {
        let payload = if *name == "memory:large" { SECRET.repeat(50) } else { SECRET.to_owned() };
        ids.push(outbox.put(message(name).json(&payload).max_attempts(1)).await);
    }
    let mut stalls = patient_lane("memory:stalls", Script::new(|_| Act::Stall));
    stalls.timeout = Duration::from_millis(20);
    let told = MemorySink::new();
    let lanes = vec![
        stalls,
        patient_lane("memory:silent", Script::new(|_| Act::Silence)),
        patient_lane("memory:panics", Script::new(|_| Act::Panic)),
        patient_lane("memory:large", MemorySink::new()),
        patient_lane("memory:dead", told.clone()),
    ];
    let settings = Settings {
        payload_limit: 500,
        dead_letter: Some("memory:dead".to_owned()),
        ..Settings::default()
    };
    let relay = outbox.start(settings, lanes);
    outbox.wait_for_all(&ids, "DEAD").await;
    told.wait_for(4).await;
    let mut shown = vec![relay.metrics(), format!("{:?}", relay.health())];
    for record in outbox.records(&ids).await {
        shown.push(record.last_error.clone().expect("a reason"));
        shown.push(format!("{record:?}"));
    }
    shown.extend(told.delivered().iter().map(|message| message.payload.as_str().to_owned()));
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
    relay.stop().await.unwrap();
}

async fn what_no_lane_serves_is_left_alone_and_shown(outbox: Outbox) {
    let unrouted = outbox.enqueue("kafka:payments", 3).await;
    let before = outbox.records(&unrouted).await;
    let routed = outbox.enqueue("memory:a", 3).await;
    let relay =
        outbox.start(Settings::default(), vec![patient_lane("memory:a", MemorySink::new())]);
    outbox.wait_for_all(&routed, "SENT").await;
    eventually("the unrouted integration", SOON, async || {
        (relay.health().unrouted == ["kafka:payments"]).then_some(())
    })
    .await;
    assert!(relay.health().ready);
    let metrics = relay.metrics();
    let gauge = "outbox_unrouted{integration=\"kafka:payments\"} 3";
    assert!(metrics.contains(gauge), "{metrics}");
    relay.stop().await.unwrap();
    assert_eq!(outbox.records(&unrouted).await, before);
    assert_eq!(outbox.store.status_counts().await.unwrap().of(Status::Pending), 3);
}
