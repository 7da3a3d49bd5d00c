//! What arrives, and what is refused for good.

use super::{Received, SinkHarness, deliver_all, message};
use crate::eventually;
use postroom_core::{Message, Outcome, REPLAY_HEADER, RawJson};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Waits until `n` messages can be read at the destination.
pub(super) async fn arrived(harness: &impl SinkHarness, n: usize) -> Vec<Received> {
    eventually("the messages to be there", SOON, async || {
        let received = harness.received().await;
        (received.len() >= n).then_some(received)
    })
    .await
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON: {error}: {text}"))
}

/// One message, read back by another client.
pub async fn what_is_delivered_is_read_back(harness: &impl SinkHarness) {
    let sink = harness.sink(harness.server()).await;
    let sent = message("e-1");
    assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    let received = arrived(harness, 1).await;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].key, "e-1");
    assert_eq!(json(&received[0].body), json(sent.payload.as_str()));
}

/// The attributes under their documented names.
pub async fn what_is_known_about_a_message_arrives_with_it(harness: &impl SinkHarness) {
    if let Err(reason) = harness.carries_attributes() {
        return harness.skip("what_is_known_about_a_message_arrives_with_it", reason);
    }
    let sink = harness.sink(harness.server()).await;
    let sent = message("e-1");
    assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    let received = arrived(harness, 1).await.remove(0);
    let id = sent.id.to_string();
    for (name, value) in [
        ("postroom-event-id", "e-1"),
        ("postroom-event-type", "order.placed.v1"),
        ("postroom-message-id", id.as_str()),
        ("postroom-stream", "order-1"),
        ("postroom-tenant", "acme"),
        ("postroom-user", "u-1"),
        ("postroom-correlation", "c-1"),
        ("postroom-causation", "k-1"),
        ("postroom-source", "shop"),
        ("postroom-schema-version", "3"),
        ("postroom-attempt", "5"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("shop", "eu"),
    ] {
        let found = received.attributes.get(name).map(String::as_str);
        assert_eq!(found, Some(value), "{name} in {:?}", received.attributes);
    }
    assert!(received.attributes.contains_key("postroom-occurred-at"));
}

/// Many at once.
pub async fn a_batch_arrives_whole(harness: &impl SinkHarness) {
    let sink = harness.sink(harness.server()).await;
    let batch: Vec<_> = (0..25).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 25]);
    let mut keys: Vec<_> = arrived(harness, 25).await.into_iter().map(|one| one.key).collect();
    let mut expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    keys.sort();
    expected.sort();
    assert_eq!(keys, expected);
}

/// Its neighbours are delivered.
pub async fn a_batch_fails_in_its_bad_message_only(harness: &impl SinkHarness) {
    let bad = match harness.bad() {
        Ok(bad) => bad,
        Err(reason) => return harness.skip("a_batch_fails_in_its_bad_message_only", reason),
    };
    let sink = harness.sink(harness.server()).await;
    let batch = [message("e-1"), bad, message("e-3")];
    let outcomes = deliver_all(&*sink, &batch).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    assert!(matches!(&outcomes[1], Outcome::Reject { .. }), "{:?}", outcomes[1]);
    let keys: Vec<_> = arrived(harness, 2).await.into_iter().map(|one| one.key).collect();
    assert_eq!(keys, ["e-1", "e-3"]);
}

/// Trying again would not make it smaller.
pub async fn an_oversized_message_is_final(harness: &impl SinkHarness) {
    let oversized = match harness.oversized() {
        Ok(oversized) => oversized,
        Err(reason) => return harness.skip("an_oversized_message_is_final", reason),
    };
    let sink = harness.sink(harness.server()).await;
    let outcomes = deliver_all(&*sink, &[oversized]).await;
    assert!(matches!(&outcomes[0], Outcome::Reject { .. }), "{:?}", outcomes[0]);
    // And it has broken nothing.
    assert_eq!(deliver_all(&*sink, &[message("e-2")]).await, [Outcome::Delivered]);
}

/// The same event twice, as after a crash: the receiver can tell.
pub async fn a_second_delivery_is_recognisable(harness: &impl SinkHarness) {
    let sink = harness.sink(harness.server()).await;
    let sent = message("e-1");
    for _ in 0..2 {
        assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    }
    assert_eq!(deliver_all(&*sink, &[message("e-2")]).await, [Outcome::Delivered]);
    let received = eventually("the last to be there", SOON, async || {
        let received = harness.received().await;
        received.iter().any(|one| one.key == "e-2").then_some(received)
    })
    .await;
    let first = received.iter().filter(|one| one.key == "e-1").count();
    assert!((1..=2).contains(&first), "{received:?}");
    assert_eq!(received.len(), first + 1, "nothing has another key: {received:?}");
}

/// Whoever numbers events for each stream anew sends the same id twice, and two integrations may
/// share a destination: a destination that drops repetitions must not drop these.
pub async fn an_event_id_of_another_stream_or_integration_arrives(harness: &impl SinkHarness) {
    let stream = Message { stream_id: "order-2".to_owned(), ..message("e-1") };
    let integration = Message { integration: "test:other".to_owned(), ..message("e-1") };
    arrive_beside_the_first(harness, &[stream, integration]).await;
}

/// The outbox promises that another `copy` is sent.
pub async fn a_second_copy_arrives(harness: &impl SinkHarness) {
    let copy = |copy| Message { copy, ..message("e-1") };
    arrive_beside_the_first(harness, &[copy(1), copy(2)]).await;
}

/// The operator has asked for it: the receiver may have lost the first. It can tell what it is.
pub async fn a_replay_arrives_and_says_so(harness: &impl SinkHarness) {
    let first = message("e-1");
    let headers = format!("{{\"{REPLAY_HEADER}\": \"{}\"}}", first.id);
    let replay = Message { copy: 1, headers: Some(RawJson::trusted(headers)), ..message("e-1") };
    for received in arrive_beside_the_first(harness, std::slice::from_ref(&replay)).await {
        let Some(id) = received.attributes.get("postroom-message-id") else { continue };
        let marked = received.attributes.contains_key(REPLAY_HEADER);
        assert_eq!(marked, *id == replay.id.to_string(), "{received:?}");
    }
}

/// Delivers `others` after a message with the same event id: each of them arrives, with the
/// same key.
async fn arrive_beside_the_first(harness: &impl SinkHarness, others: &[Message]) -> Vec<Received> {
    let sink = harness.sink(harness.server()).await;
    let all: Vec<Message> = std::iter::once(message("e-1")).chain(others.iter().cloned()).collect();
    for one in &all {
        assert_eq!(deliver_all(&*sink, std::slice::from_ref(one)).await, [Outcome::Delivered]);
    }
    let received = arrived(harness, all.len()).await;
    assert_eq!(received.len(), all.len());
    assert!(received.iter().all(|one| one.key == "e-1"), "{received:?}");
    if harness.carries_attributes().is_ok() {
        let id = "postroom-message-id";
        let mut found: Vec<_> = received.iter().map(|one| one.attributes[id].clone()).collect();
        let mut sent: Vec<_> = all.iter().map(|one| one.id.to_string()).collect();
        found.sort();
        sent.sort();
        assert_eq!(found, sent, "each of them once");
    }
    received
}

/// `postroom check` finds it.
pub async fn the_destination_can_be_probed(harness: &impl SinkHarness) {
    let sink = harness.sink(harness.server()).await;
    sink.probe().await.unwrap_or_else(|error| panic!("{error}"));
    assert!(harness.received().await.is_empty(), "a probe delivers nothing");
}
