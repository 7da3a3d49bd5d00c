//! Taking messages in: all of a batch with its checkpoint, or nothing.

use super::Harness;
use super::steps::{assert_nothing_due, assert_same, enqueue, find, ids, message, take};
use postroom_core::{
    Admin, Checkpoint, Enqueued, Filter, MessageId, NewMessage, POSITION_BYTES, StoreErrorKind,
};
use serde_json::json;
use std::collections::BTreeSet;

const READER: &str = "orders";

/// `n` messages of events `prefix-0`, `prefix-1` and so on.
fn batch(prefix: &str, n: usize) -> Vec<NewMessage> {
    (0..n).map(|i| message("noop").event_id(format!("{prefix}-{i}"))).collect()
}

/// A move of the one checkpoint that these tests have.
fn moving(expected: Option<&str>, position: &str) -> Checkpoint {
    Checkpoint {
        name: READER.to_owned(),
        position: position.to_owned(),
        expected: expected.map(str::to_owned),
    }
}

fn ids_of(answers: &[Enqueued]) -> Vec<MessageId> {
    answers.iter().map(|answer| answer.id().clone()).collect()
}

async fn count(store: &dyn Admin) -> usize {
    store.list(&Filter { limit: 10_000, ..Filter::default() }).await.expect("list").len()
}

/// More than fit into one statement, of which some are there already.
pub async fn many_messages_are_accepted_at_once_in_their_order(outbox: &impl Harness) {
    let store = outbox.store().await;
    let there = enqueue(&*store, &batch("e", 1_000)[500]).await;
    // The order of their event ids is another one.
    let answers = store.accept(&batch("e", 1_000), None).await.expect("accept");
    assert_eq!(answers.len(), 1_000);
    assert_eq!(answers[500], Enqueued::Duplicate(there.clone()));
    let new: Vec<MessageId> =
        answers.iter().filter(|one| one.is_new()).map(|one| one.id().clone()).collect();
    assert_eq!(new.iter().collect::<BTreeSet<_>>().len(), 999);

    let taken = take(&*store, "worker", &["noop"], 2_000).await.expect("due messages");
    let mut by_number: Vec<_> =
        taken.messages.iter().map(|one| (one.message.seq, one.message.id.clone())).collect();
    by_number.sort_unstable();
    let by_number: Vec<MessageId> = by_number.into_iter().map(|(_, id)| id).collect();
    assert_eq!(by_number[0], there);
    assert_eq!(by_number[1..], new, "numbered in the batch's order");
    assert_nothing_due(&*store, "noop").await;
}

/// What is written with others is what is written alone.
pub async fn accepted_messages_are_stored_whole(outbox: &impl Harness) {
    let store = outbox.store().await;
    let whole = NewMessage::new("webhook:partnerX", "payment.completed.v1")
        .event_id("evt-é-1")
        .stream("payment-42")
        .json(&json!({"z": [1, 2.5, null, true], "a": "it's \"here\" \\ there, {NULL}"}))
        .headers(&json!({"shop": "eu"}))
        .tenant("acme")
        .user("u-1")
        .correlation("corr-1")
        .causation("cause-1")
        .source("billing")
        .ordering_key("key-1")
        .schema_version(3)
        .occurred_at("2026-03-29T01:59:59.123+02:00".parse().expect("a time"))
        .due_at("2026-03-29T02:59:59.123+02:00".parse().expect("a time"))
        .max_attempts(7);
    for new in [whole, message("noop").event_id("bare")] {
        let alone = enqueue(&*store, &new).await;
        let together = [new.clone().copy(1), new.copy(2)];
        let answers = store.accept(&together, None).await.expect("accept");
        let mut expected = find(&*store, &alone).await;
        for (answer, new) in answers.iter().zip(&together) {
            let actual = find(&*store, answer.id()).await;
            expected.message.id = answer.id().clone();
            expected.message.copy = new.copy;
            expected.message.seq = actual.message.seq;
            expected.message.created_at = actual.message.created_at;
            expected.message.due_at = new.due_at.unwrap_or(actual.message.due_at);
            expected.updated_at = actual.updated_at;
            assert!(actual.message.due_at <= actual.message.created_at, "due at once");
            assert_same(&actual, &expected);
        }
    }
}

/// The first message stays as it was, and a batch can be repeated.
pub async fn a_duplicate_is_answered_with_the_first_id(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = store.accept(&batch("e", 3), None).await.expect("accept");
    assert!(first.iter().all(|answer| answer.is_new()), "{first:?}");
    let before = find(&*store, first[1].id()).await;

    let changed = |new: NewMessage| new.json(&json!({"other": true})).tenant("other");
    let again: Vec<NewMessage> = batch("e", 4).into_iter().map(changed).collect();
    let answers = store.accept(&again, None).await.expect("accept");
    assert_eq!(ids_of(&answers)[..3], ids_of(&first));
    let new: Vec<bool> = answers.iter().map(|answer| answer.is_new()).collect();
    assert_eq!(new, [false, false, false, true]);
    assert_same(&find(&*store, first[1].id()).await, &before);
    assert_eq!(outbox.deliveries().await, 4);
}

/// The same event twice in one batch is one message. Another integration, copy or stream is not
/// the same.
pub async fn a_duplicate_within_the_batch_is_answered_with_the_first_id(outbox: &impl Harness) {
    let store = outbox.store().await;
    let one = message("noop").event_id("evt-1");
    let mut elsewhere = one.clone();
    elsewhere.integration = "stdout".to_owned();
    let batch = [
        one.clone(),
        elsewhere,
        one.clone().json(&json!({"second": true})),
        one.clone().copy(1),
        one.clone().stream("order-2"),
        one.clone(),
    ];
    let answers = store.accept(&batch, None).await.expect("accept");
    let new: Vec<bool> = answers.iter().map(|answer| answer.is_new()).collect();
    assert_eq!(new, [true, true, false, true, true, false]);
    assert_eq!(answers[2], Enqueued::Duplicate(answers[0].id().clone()));
    assert_eq!(answers[5], Enqueued::Duplicate(answers[0].id().clone()));
    assert!(!find(&*store, answers[0].id()).await.message.payload.as_str().contains("second"));
    assert_eq!(outbox.deliveries().await, 4);
}

/// One bad message among many: nothing is written, and the error says which it was.
pub async fn an_invalid_message_refuses_the_whole_batch_and_is_named(outbox: &impl Harness) {
    let store = outbox.store().await;
    for bad in [
        message("noop").max_attempts(0),
        message("noop").stream("s".repeat(201)),
        message("noop").raw("{"),
    ] {
        let mut all = batch("e", 5);
        all[3] = bad;
        let error = store.accept(&all, None).await.expect_err("must be refused");
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().starts_with("message 3 of the batch"), "{error}");
    }
    assert_eq!(count(&*store).await, 0);
    assert_eq!(outbox.deliveries().await, 0);
}

/// From one position to the next, each time with the messages up to there.
pub async fn a_checkpoint_moves_with_its_messages(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint"), None);
    let mut expected: Option<String> = None;
    for position in ["", "7", "7", "7 ", "é'\"\\ 8"] {
        let checkpoint = moving(expected.as_deref(), position);
        let accepted = store.accept(&[message("noop")], Some(&checkpoint)).await;
        assert!(accepted.expect("accept")[0].is_new());
        let stored = outbox.store().await.checkpoint(READER).await.expect("checkpoint");
        assert_eq!(stored.as_deref(), Some(position));
        expected = stored;
    }
    assert_eq!(count(&*store).await, 5);
    assert_eq!(store.checkpoint("Orders").await.expect("checkpoint"), None, "a name of its own");
    let other = Checkpoint { name: "Orders".to_owned(), ..moving(None, "1") };
    store.accept(&[], Some(&other)).await.expect("accept");
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint"), expected);
}

/// Whoever has read an older position writes nothing.
pub async fn a_checkpoint_that_stands_elsewhere_leaves_no_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let error = store.accept(&batch("e", 3), Some(&moving(Some("5"), "6"))).await;
    let error = error.expect_err("there is none");
    assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint"), None);

    store.accept(&[], Some(&moving(None, "position-7"))).await.expect("accept");
    for expected in [None, Some("position-6"), Some("position-7 "), Some("POSITION-7")] {
        let stale = moving(expected, "position-9");
        let error = store.accept(&batch("e", 3), Some(&stale)).await.expect_err("a conflict");
        assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
        let text = error.to_string();
        for part in [READER, "position-7", expected.unwrap_or("no position")] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint").as_deref(), Some("position-7"));
    assert_eq!(count(&*store).await, 0);
    assert_eq!(outbox.deliveries().await, 0);
}

/// The position stays where the messages were not written.
pub async fn a_refused_batch_leaves_the_checkpoint(outbox: &impl Harness) {
    let store = outbox.store().await;
    store.accept(&[], Some(&moving(None, "1"))).await.expect("accept");
    let bad = [message("noop"), message("")];
    let refused = store.accept(&bad, Some(&moving(Some("1"), "2"))).await;
    assert_eq!(refused.expect_err("must be refused").kind, StoreErrorKind::Refused);
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint").as_deref(), Some("1"));
    assert_eq!(count(&*store).await, 0);
}

/// Nothing to deliver was among what was read.
pub async fn an_empty_batch_moves_its_checkpoint(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert_eq!(store.accept(&[], None).await.expect("accept"), []);
    assert_eq!(store.accept(&[], Some(&moving(None, "1"))).await.expect("accept"), []);
    assert_eq!(store.accept(&[], Some(&moving(Some("1"), "2"))).await.expect("accept"), []);
    assert_eq!(store.checkpoint(READER).await.expect("checkpoint").as_deref(), Some("2"));
}

/// The longest that is allowed is kept, and nothing longer.
pub async fn a_checkpoint_that_no_store_could_keep_is_refused(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (name, position) = ("é".repeat(120), "7".repeat(POSITION_BYTES));
    let longest = Checkpoint { name: name.clone(), position: position.clone(), expected: None };
    store.accept(&[], Some(&longest)).await.expect("accept");
    assert_eq!(store.checkpoint(&name).await.expect("checkpoint"), Some(position.clone()));
    for bad in [
        Checkpoint { name: "é".repeat(121), ..longest.clone() },
        Checkpoint { name: String::new(), ..longest.clone() },
        Checkpoint { position: position + "7", ..longest },
    ] {
        let refused = store.accept(&[message("noop")], Some(&bad)).await;
        assert_eq!(refused.expect_err("must be refused").kind, StoreErrorKind::Refused);
    }
    assert_eq!(count(&*store).await, 0);
}

/// Two that have read the same position: one writes its messages, the other nothing.
pub async fn of_racing_accepts_from_one_checkpoint_one_wins(outbox: &impl Harness) {
    let mut expected: Option<String> = None;
    for round in 0..5 {
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..2 {
            let store = outbox.store().await;
            let position = format!("{round} by {racer}");
            let checkpoint = moving(expected.as_deref(), &position);
            let messages = batch(&position, 3);
            racers.spawn(async move {
                store.accept(&messages, Some(&checkpoint)).await.map(|answers| (position, answers))
            });
        }
        let (won, lost): (Vec<_>, Vec<_>) =
            racers.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1), "{won:?} {lost:?}");
        for error in lost.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
        }
        let (position, answers) = won.into_iter().find_map(Result::ok).expect("a winner");
        let store = outbox.store().await;
        expected = store.checkpoint(READER).await.expect("checkpoint");
        assert_eq!(expected, Some(position));
        let taken = take(&*store, "worker", &["noop"], 10).await.expect("due messages");
        let taken: BTreeSet<MessageId> = ids(&taken).into_iter().collect();
        assert_eq!(taken, ids_of(&answers).into_iter().collect());
    }
}
