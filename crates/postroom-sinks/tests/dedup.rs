//! Each message is passed on once.

use crate::messages::{deliver, deliver_one, message};
use postroom_core::{Message, Outcome, REPLAY_HEADER, RawJson};
use postroom_sinks::{DedupSink, MemorySink};
use std::sync::Arc;

fn wrapped(capacity: usize) -> (MemorySink, Arc<DedupSink>) {
    let inner = MemorySink::new();
    (inner.clone(), Arc::new(DedupSink::new(Arc::new(inner), capacity)))
}

fn received(inner: &MemorySink) -> Vec<String> {
    inner.delivered().into_iter().map(|message| message.event_id).collect()
}

#[tokio::test]
async fn repeats_are_acknowledged_and_not_passed_on() {
    let (inner, sink) = wrapped(10);
    let batch = [message("a"), message("b"), message("a"), message("c")];
    assert_eq!(deliver(&*sink, &batch).await, vec![Outcome::Delivered; 4]);
    assert_eq!(deliver(&*sink, &batch).await, vec![Outcome::Delivered; 4]);
    assert_eq!(received(&inner), ["a", "b", "c"]);
}

#[tokio::test]
async fn another_stream_a_second_copy_and_a_replay_are_no_repeats() {
    let (inner, sink) = wrapped(10);
    let other = Message { stream_id: "order-2".to_owned(), ..message("a") };
    let copy = Message { copy: 1, ..message("a") };
    let headers = format!("{{\"{REPLAY_HEADER}\":\"{}\"}}", copy.id);
    let replay = Message { copy: 2, headers: Some(RawJson::trusted(headers)), ..message("a") };
    let batch = [message("a"), other, copy, replay];
    assert_eq!(deliver(&*sink, &batch).await, vec![Outcome::Delivered; 4]);
    assert_eq!(inner.delivered(), batch);
}

#[tokio::test]
async fn a_failure_is_not_remembered() {
    let (inner, sink) = wrapped(10);
    inner.fail_next(1, Outcome::retry("busy"));
    let batch = [message("a"), message("b")];
    assert_eq!(deliver(&*sink, &batch).await, [Outcome::retry("busy"), Outcome::Delivered]);
    assert_eq!(deliver(&*sink, &batch).await, vec![Outcome::Delivered; 2]);
    assert_eq!(received(&inner), ["b", "a"]);
}

#[tokio::test]
async fn the_oldest_ids_are_forgotten_first() {
    let (inner, sink) = wrapped(2);
    for id in ["a", "b", "c", "b", "a"] {
        deliver_one(&*sink, message(id)).await;
    }
    assert_eq!(received(&inner), ["a", "b", "c", "a"]);
}

#[tokio::test]
async fn two_at_once_wait_for_each_other() {
    let (inner, sink) = wrapped(10);
    inner.hold();
    let twice: Vec<_> = (0..2)
        .map(|_| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { deliver_one(&*sink, message("a")).await })
        })
        .collect();
    inner.wait_held(1).await;
    inner.release();
    for one in twice {
        assert_eq!(one.await.unwrap(), Outcome::Delivered);
    }
    assert_eq!(received(&inner), ["a"]);
}

#[tokio::test]
async fn an_attempt_that_was_given_up_frees_its_id() {
    let (inner, sink) = wrapped(10);
    inner.hold();
    let given_up = tokio::spawn({
        let sink = Arc::clone(&sink);
        async move { deliver_one(&*sink, message("a")).await }
    });
    inner.wait_held(1).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    inner.release();
    assert_eq!(deliver_one(&*sink, message("a")).await, Outcome::Delivered);
    assert_eq!(received(&inner), ["a"]);
}
