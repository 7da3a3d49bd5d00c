//! Sent messages again.

use super::Harness;
use super::steps::{
    assert_between, begin, dead, enqueue, failed, find, message, now, take_and_settle, take_one,
};
use postroom_core::{Fate, Key, Message, NewMessage, Operation, REPLAY_HEADER, Record, Store};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// A message that was sent, with something in every column a replay must keep.
async fn sent(store: &dyn Store) -> Record {
    let mut new = message("noop").event_id("evt-1").max_attempts(3);
    new.tenant_id = Some("acme".to_owned());
    new.user_id = Some("ann".to_owned());
    new.correlation_id = Some("req-7".to_owned());
    new.causation_id = Some("cmd-1".to_owned());
    new.source = Some("shop".to_owned());
    new.ordering_key = Some("order-1".to_owned());
    new.schema_version = 4;
    new.occurred_at = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
    send(store, &new).await
}

async fn send(store: &dyn Store, new: &NewMessage) -> Record {
    let id = enqueue(store, new).await;
    take_and_settle(store, &new.integration, failed(Duration::ZERO)).await;
    take_and_settle(store, &new.integration, Fate::Sent).await;
    find(store, &id).await
}

async fn replay(store: &dyn Store, key: Key, fresh_ids: bool) -> Record {
    let action = begin(store, Operation::Replay).await;
    let made = store.replay(action, &[key], fresh_ids).await.expect("replay");
    assert_eq!(made.len(), 1);
    assert_eq!(store.actions(None, 1).await.expect("actions")[0].messages, 1);
    find(store, &made[0]).await
}

fn headers(message: &Message) -> Value {
    let headers = message.headers.as_ref().expect("a replay has headers");
    serde_json::from_str(headers.as_str()).expect("JSON")
}

/// The same event with the next copy, so that receivers recognise it; the first row is history.
pub async fn a_replay_is_a_new_row_that_names_the_first(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = sent(&*store).await;
    let before = now(&*store).await;
    let again = replay(&*store, first.key(), false).await;
    assert_eq!(again.status, "PENDING");
    assert_between(before, again.message.due_at, now(&*store).await);
    assert_between(before, again.message.created_at, now(&*store).await);
    assert_eq!(headers(&again.message), json!({ REPLAY_HEADER: first.message.id.to_string() }));
    let expected = Message {
        id: again.message.id.clone(),
        seq: again.message.seq,
        copy: 1,
        attempts: 0,
        headers: again.message.headers.clone(),
        due_at: again.message.due_at,
        created_at: again.message.created_at,
        ..first.message.clone()
    };
    assert_eq!(again.message, expected);
    assert_eq!((again.sent_at, again.last_error), (None, None));
    assert_eq!(find(&*store, &first.message.id).await, first);

    let taken = take_and_settle(&*store, "noop", Fate::Sent).await;
    assert_eq!(taken.message.id, again.message.id);
    assert_eq!(outbox.deliveries().await, 0);
}

/// Each replay has a copy of its own, whichever row it is made from.
pub async fn replays_count_their_copies(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = sent(&*store).await;
    let second = replay(&*store, first.key(), false).await;
    take_and_settle(&*store, "noop", Fate::Sent).await;
    let action = begin(&*store, Operation::Replay).await;
    let keys = [second.key(), first.key()];
    let made = store.replay(action, &keys, false).await.expect("replay");
    let mut copies = Vec::new();
    for id in made {
        let record = find(&*store, &id).await;
        copies.push((record.message.copy, headers(&record.message)[REPLAY_HEADER].clone()));
    }
    copies.sort_by_key(|(copy, _)| *copy);
    let id = |record: &Record| Value::from(record.message.id.to_string());
    assert_eq!(copies, [(2, id(&first)), (3, id(&second))]);
}

/// To repeat the effect, receivers must not recognise it.
pub async fn a_replay_with_a_fresh_id_is_another_event(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = sent(&*store).await;
    let again = replay(&*store, first.key(), true).await;
    assert_ne!(again.message.event_id, first.message.event_id);
    Uuid::parse_str(&again.message.event_id).expect("a UUID");
    assert_eq!((again.message.copy, &again.message.stream_id), (0, &first.message.stream_id));
    assert_eq!(headers(&again.message)[REPLAY_HEADER], first.message.id.to_string());
    let third = replay(&*store, first.key(), true).await;
    assert_ne!(third.message.event_id, again.message.event_id);
}

/// What the producer said goes along.
pub async fn a_replay_keeps_the_headers(outbox: &impl Harness) {
    let store = outbox.store().await;
    let new = message("noop").raw_headers(br#"{"traceparent": "00-a-b-01", "n": "7"}"#.to_vec());
    let first = send(&*store, &new).await;
    let again = replay(&*store, first.key(), false).await;
    let expected = json!({
        "traceparent": "00-a-b-01", "n": "7", REPLAY_HEADER: first.message.id.to_string(),
    });
    assert_eq!(headers(&again.message), expected);
}

/// What is open is on its way already; what is dead is redriven.
pub async fn only_sent_messages_are_replayed(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut keys = Vec::new();
    for fate in [failed(Duration::from_secs(60)), dead()] {
        enqueue(&*store, &message("noop")).await;
        keys.push(take_and_settle(&*store, "noop", fate).await.key());
    }
    let claimed = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "worker", "noop").await;
    outbox.set_status(&claimed, "SENT").await.expect("by hand, during an attempt");
    keys.push(find(&*store, &claimed).await.key());
    let pending = enqueue(&*store, &message("noop")).await;
    keys.push(find(&*store, &pending).await.key());
    let action = begin(&*store, Operation::Replay).await;
    assert!(store.replay(action, &keys, false).await.expect("replay").is_empty());
    assert!(store.replay(action, &keys, true).await.expect("replay").is_empty());

    // SENT by hand is sent.
    outbox.set_status(&pending, "SENT").await.expect("by hand");
    assert_eq!(store.replay(action, &keys, false).await.expect("replay").len(), 1);
}

/// Operators who replay the same message at once get a row each, and no error.
pub async fn racing_replays_make_a_row_each(outbox: &impl Harness) {
    let store = outbox.store().await;
    let key = sent(&*store).await.key();
    let mut racing = Vec::new();
    for _ in 0..4 {
        let (store, key) = (outbox.store().await, key.clone());
        racing.push(tokio::spawn(async move {
            let action = begin(&*store, Operation::Replay).await;
            store.replay(action, &[key], false).await.expect("replay")
        }));
    }
    let mut copies = Vec::new();
    for operator in racing {
        let made = operator.await.expect("an operator");
        copies.push(find(&*store, &made[0]).await.message.copy);
    }
    copies.sort_unstable();
    assert_eq!(copies, [1, 2, 3, 4]);
}
