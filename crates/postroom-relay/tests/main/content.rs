//! Rows whose content or destination makes no sense, and what is recorded of failures.

use crate::outbox::{Outbox, SOON, message, on_stores, patient_lane};
use crate::script::{Act, Script};
use postroom_core::{Outcome, Status};
use postroom_relay::{Pass, Settings};
use postroom_sinks::MemorySink;
use postroom_testkit::eventually;
use std::time::Duration;

/// What no error, log, metric or health page may show.
const SECRET: &str = "4111-1111-1111-1111";

on_stores! { [mariadb memory postgres sqlite]:
    an_oversized_payload_is_dead_with_its_reason_and_never_offered
    an_error_is_recorded_up_to_its_limit
    what_no_lane_serves_is_left_alone_and_shown
}

on_stores! { [memory postgres]:
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
    let dead = outbox.record(large).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 0));
    let error = dead.last_error.unwrap();
    assert!(error.contains("over the limit of 100 bytes"), "{error}");
    assert_eq!(dead.message.payload.len(), 103, "the content stays as it is");
    assert_eq!(sink.delivered()[0].id, small);
    assert_eq!(sink.attempts(), 1);
}

async fn headers_that_are_no_object_are_dead_with_their_reason_and_never_offered(outbox: Outbox) {
    let row = [
        ("source_stream_id", "order-1"),
        ("source_event_id", "e-1"),
        ("integration_type", "memory:a"),
        ("event_type", "order.created.v1"),
        ("payload", "{}"),
        ("headers", "[1, 2]"),
    ];
    let id = outbox.insert(&row).await;
    let sink = MemorySink::new();
    let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink.clone())]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 1, dead: 1, ..Pass::default() });
    let dead = outbox.record(id).await;
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
