//! What every driver must keep.

use crate::outbox::{End, every_driver};
use chrono::{DateTime, Utc};
use postroom::{EnqueueError, Enqueued, Field, MessageError, NewMessage};
use serde_json::json;

fn message() -> NewMessage {
    NewMessage::new("webhook:partnerX", "order.created.v1")
        .event_id("evt_1")
        .stream("ord_1")
        .json(&json!({"orderId": "ord_1"}))
}

#[tokio::test]
async fn commit_keeps_both_the_row_and_the_message() {
    for outbox in every_driver().await {
        let enqueued = outbox.place_order(message(), End::Commit).await.unwrap();
        assert!(enqueued.is_new());
        assert_eq!(outbox.orders().await, 1);
        let messages = outbox.messages().await;
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].message.id, *enqueued.id());
        assert_eq!(messages[0].status, "PENDING");
    }
}

#[tokio::test]
async fn fault_01_a_rollback_keeps_neither() {
    for outbox in every_driver().await {
        outbox.place_order(message(), End::Rollback).await.unwrap();
        assert_eq!(outbox.orders().await, 0);
        assert!(outbox.messages().await.is_empty());
        assert!(outbox.store.backlog().await.unwrap().lanes.is_empty());
    }
}

#[tokio::test]
async fn every_field_arrives_as_it_was_given() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    for outbox in every_driver().await {
        let given = message()
            .headers(&json!({"x-trace": "1"}))
            .tenant("acme")
            .user("usr_1")
            .correlation("corr")
            .causation("cause")
            .source("shop")
            .ordering_key("key")
            .schema_version(3)
            .copy(2)
            .occurred_at(at("2026-01-02T03:04:05.678Z"))
            .due_at(at("2030-01-02T03:04:05.678Z"))
            .max_attempts(7);
        outbox.place_order(given, End::Commit).await.unwrap();
        let record = outbox.messages().await.remove(0);
        let m = &record.message;
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parse(m.payload.as_str()), json!({"orderId": "ord_1"}));
        assert_eq!(parse(m.headers.as_ref().unwrap().as_str()), json!({"x-trace": "1"}));
        assert_eq!(m.event_id, "evt_1");
        assert_eq!(m.stream_id, "ord_1");
        assert_eq!(m.integration, "webhook:partnerX");
        assert_eq!(m.event_type, "order.created.v1");
        assert_eq!(m.tenant_id.as_deref(), Some("acme"));
        assert_eq!(m.user_id.as_deref(), Some("usr_1"));
        assert_eq!(m.correlation_id.as_deref(), Some("corr"));
        assert_eq!(m.causation_id.as_deref(), Some("cause"));
        assert_eq!(m.source.as_deref(), Some("shop"));
        assert_eq!(m.ordering_key.as_deref(), Some("key"));
        assert_eq!((m.schema_version, m.copy, m.attempts, m.max_attempts), (3, 2, 0, 7));
        assert_eq!(m.occurred_at, Some(at("2026-01-02T03:04:05.678Z")));
        assert_eq!(m.due_at, at("2030-01-02T03:04:05.678Z"));
    }
}

#[tokio::test]
async fn fault_40_the_second_of_the_same_event_is_a_duplicate_and_changes_nothing() {
    for outbox in every_driver().await {
        let first = outbox.enqueue_all(vec![message()]).await.remove(0);
        let again = message().json(&json!({"orderId": "another"}));
        let second = outbox.enqueue_all(vec![again]).await.remove(0);
        assert_eq!(second, Enqueued::Duplicate(first.id().clone()));
        let messages = outbox.messages().await;
        assert_eq!(messages.len(), 1);
        assert!(messages[0].message.payload.as_str().contains("ord_1"));
        // Another integration, or another copy, is another message.
        let mut fan_out = message();
        fan_out.integration = "kafka:orders".to_owned();
        assert!(outbox.enqueue_all(vec![fan_out]).await[0].is_new());
        assert!(outbox.enqueue_all(vec![message().copy(1)]).await[0].is_new());
    }
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_messages() {
    for outbox in every_driver().await {
        let events = ["c", "a", "b", "a"];
        let messages = events.map(|event| message().event_id(event)).to_vec();
        let answers = outbox.enqueue_all(messages).await;
        assert_eq!(answers[3], Enqueued::Duplicate(answers[1].id().clone()));
        for (event, answer) in events.iter().zip(&answers) {
            let record = outbox.store.find(answer.id()).await.unwrap().unwrap();
            assert_eq!(record.message.event_id, *event);
        }
    }
}

#[tokio::test]
async fn fault_39_what_is_refused_leaves_the_transaction_usable_and_nothing_written() {
    for outbox in every_driver().await {
        let bad = [
            message().stream("s".repeat(201)),
            message().raw("{"),
            message().raw(vec![0xff]),
            message().raw("\"\\u0000\""),
            message().raw("1e400"),
            message().raw("[".repeat(10_000)),
            message().headers(&json!("no object")),
            message().max_attempts(0),
        ];
        for bad in bad {
            let refused = outbox.place_order(bad, End::Commit).await.unwrap_err();
            assert!(matches!(refused, EnqueueError::Invalid(_)), "{refused}");
        }
        assert!(outbox.messages().await.is_empty());
        let refused = outbox.place_order(message().event_id(""), End::Commit).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "message refused: source_event_id is empty: give it a value"
        );
        assert!(matches!(
            refused,
            EnqueueError::Invalid(MessageError::Empty { field: Field::EventId })
        ));
    }
}
