//! Enqueueing: stored whole, once, or refused.

use super::Harness;
use super::steps::{assert_between, assert_same, enqueue, find, in_ms, message, now};
use chrono::{DateTime, Utc};
use postroom_core::{
    Enqueued, Filter, Message, MessageId, NewMessage, RawJson, Record, StoreErrorKind,
};
use serde_json::json;
use std::time::Duration;

/// What a new message looks like; ids and times of the database are taken from `actual`.
fn expected(new: &NewMessage, id: &MessageId, actual: &Record) -> Record {
    Record {
        message: Message {
            id: id.clone(),
            seq: actual.message.seq,
            event_id: new.event_id.clone(),
            stream_id: new.stream_id().to_owned(),
            integration: new.integration.clone(),
            event_type: new.event_type.clone(),
            payload: new.payload().expect("a payload").clone(),
            headers: new.headers_json().cloned(),
            tenant_id: new.tenant_id.clone(),
            user_id: new.user_id.clone(),
            correlation_id: new.correlation_id.clone(),
            causation_id: new.causation_id.clone(),
            source: new.source.clone(),
            ordering_key: new.ordering_key.clone(),
            schema_version: new.schema_version,
            copy: new.copy,
            occurred_at: new.occurred_at,
            due_at: new.due_at.unwrap_or(actual.message.due_at),
            attempts: 0,
            max_attempts: new.max_attempts.unsigned_abs(),
            created_at: actual.message.created_at,
        },
        status: "PENDING".to_owned(),
        locked_at: None,
        locked_by: None,
        updated_at: actual.message.created_at,
        sent_at: None,
        last_error: None,
    }
}

/// Every field comes back as it was given.
pub async fn a_message_is_stored_whole(outbox: &impl Harness) {
    let store = outbox.store().await;
    let moment: DateTime<Utc> = "2026-03-29T01:59:59.123+02:00".parse().expect("a time");
    let new = NewMessage::new("webhook:partnerX", "payment.completed.v1")
        .event_id("evt-é-1")
        .stream("payment-42")
        .json(
            &json!({"z": [1, 2.5, null, true], "a": {"quote": "it's \"here\" \\ there", "n": -1}}),
        )
        .headers(&json!({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}))
        .tenant("acme")
        .user("u-1")
        .correlation("corr-1")
        .causation("cause-1")
        .source("billing")
        .ordering_key("key-1")
        .schema_version(3)
        .copy(2)
        .occurred_at(moment)
        .due_at(moment + Duration::from_secs(3_600))
        .max_attempts(7);
    let before = now(&*store).await;
    let id = enqueue(&*store, &new).await;
    let after = now(&*store).await;

    let actual = find(&*store, &id).await;
    assert_between(before, actual.message.created_at, after);
    assert_same(&actual, &expected(&new, &id, &actual));
}

/// What is not given is null, or has its default.
pub async fn a_message_with_nothing_set_has_the_defaults(outbox: &impl Harness) {
    let store = outbox.store().await;
    let new = NewMessage::new("noop", "ping");
    let before = now(&*store).await;
    let id = enqueue(&*store, &new).await;
    let after = now(&*store).await;

    let actual = find(&*store, &id).await;
    assert_between(before, actual.message.created_at, after);
    assert_between(before, actual.message.due_at, after);
    assert_eq!(actual.message.stream_id, new.event_id);
    assert_eq!(actual.message.max_attempts, 10);
    assert_eq!(actual.message.schema_version, 1);
    assert_same(&actual, &expected(&new, &id, &actual));
}

/// The fence: the first message stays as it was.
pub async fn fault_40_a_duplicate_has_the_first_id_and_changes_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = message("noop").event_id("evt-1");
    let id = enqueue(&*store, &first).await;
    let before = find(&*store, &id).await;

    let again = first.clone().json(&json!({"other": true})).tenant("other").max_attempts(3);
    let answer = store.enqueue(&again).await.expect("enqueue");
    assert_eq!(answer, Enqueued::Duplicate(id.clone()));
    assert_same(&find(&*store, &id).await, &before);
    let all = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("list");
    assert_eq!(all.len(), 1);
    assert_eq!(outbox.deliveries().await, 1);
}

/// Producers that race for one event agree on one message.
pub async fn fault_40_of_racing_duplicates_one_is_new(outbox: &impl Harness) {
    let new = message("noop").event_id("evt-1");
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, new) = (outbox.store().await, new.clone());
        producers.spawn(async move { store.enqueue(&new).await.expect("enqueue") });
    }
    let answers = producers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.id() == answers[0].id()), "{answers:?}");
    assert_eq!(outbox.deliveries().await, 1);
}

/// One event may reach several integrations, several times, from several streams.
pub async fn another_integration_copy_or_stream_is_another_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = message("noop").event_id("evt-1");
    let mut elsewhere = first.clone();
    elsewhere.integration = "stdout".to_owned();
    let all = [first.clone(), elsewhere, first.clone().copy(1), first.clone().stream("order-2")];
    for new in &all {
        assert!(store.enqueue(new).await.expect("enqueue").is_new());
        assert!(!store.enqueue(new).await.expect("enqueue").is_new());
    }
}

/// Nothing is written when a message is refused.
pub async fn an_invalid_message_is_refused_and_not_written(outbox: &impl Harness) {
    let store = outbox.store().await;
    for bad in [
        message("noop").max_attempts(0),
        message("noop").stream("s".repeat(201)),
        message(""),
        message("noop").raw("{"),
        message("noop").headers(&json!([1])),
    ] {
        let error = store.enqueue(&bad).await.expect_err("must be refused");
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    }
    assert_eq!(outbox.deliveries().await, 0);
    let all = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("list");
    assert!(all.is_empty());
}

/// Ids grow with time, as UUIDv7 does.
pub async fn ids_and_sequence_numbers_grow(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = find(&*store, &enqueue(&*store, &message("noop")).await).await;
    let second = find(&*store, &enqueue(&*store, &message("noop")).await).await;
    assert!(first.message.seq < second.message.seq);
    assert_eq!(first.message.id.as_uuid().expect("a UUID").get_version_num(), 7);
    assert!(first.message.id < second.message.id);
}

/// A payload passes through as the JSON it was.
pub async fn a_payload_of_any_json_type_passes_through(outbox: &impl Harness) {
    let store = outbox.store().await;
    for text in ["null", "1", "\"text\"", "[]", "{\"a\":{\"b\":[{}]}}", "\"\u{1f4ee} é \\n\""] {
        let id = enqueue(&*store, &message("noop").raw(text)).await;
        let mut expected = find(&*store, &id).await;
        expected.message.payload = RawJson::trusted(text);
        assert_same(&find(&*store, &id).await, &expected);
    }
    let at = in_ms(now(&*store).await);
    let id = enqueue(&*store, &message("noop").due_at(at)).await;
    assert_eq!(find(&*store, &id).await.message.due_at, at);
}
