//! The memory sink does what a test tells it to.

mod contract;

use crate::messages::{deliver, deliver_one, message};
use postroom_core::Outcome;
use postroom_sinks::MemorySink;

#[tokio::test]
async fn it_records_what_it_acknowledges() {
    let sink = MemorySink::new();
    let batch = [message("a"), message("b")];
    assert_eq!(deliver(&sink, &batch).await, [Outcome::Delivered, Outcome::Delivered]);
    assert_eq!(sink.delivered(), batch);
}

#[tokio::test]
async fn it_fails_as_often_as_asked_and_then_no_more() {
    let sink = MemorySink::new();
    sink.fail_next(2, Outcome::reject("no"));
    let outcomes = deliver(&sink, &[message("a"), message("b"), message("c")]).await;
    assert_eq!(outcomes, [Outcome::reject("no"), Outcome::reject("no"), Outcome::Delivered]);
    assert_eq!((sink.attempts(), sink.delivered().len()), (3, 1));
}

#[tokio::test]
async fn a_lost_answer_leaves_the_message_with_the_receiver() {
    let sink = MemorySink::new();
    sink.lose_next_answers(1);
    assert!(matches!(deliver_one(&sink, message("a")).await, Outcome::Retry { .. }));
    assert_eq!(sink.delivered().len(), 1);
}

#[tokio::test]
async fn it_holds_until_released() {
    let sink = MemorySink::new();
    sink.hold();
    let delivering = tokio::spawn({
        let sink = sink.clone();
        async move { deliver_one(&sink, message("a")).await }
    });
    sink.wait_held(1).await;
    assert!(sink.delivered().is_empty());
    sink.release();
    sink.wait_for(1).await;
    assert_eq!(delivering.await.unwrap(), Outcome::Delivered);
}

#[tokio::test]
async fn it_panics_on_the_message_it_was_told_to() {
    let sink = MemorySink::new();
    sink.panic_on("bad");
    let delivering = tokio::spawn({
        let sink = sink.clone();
        async move { deliver(&sink, &[message("good"), message("bad")]).await }
    });
    assert!(delivering.await.unwrap_err().is_panic());
    assert_eq!(sink.delivered().len(), 1, "what came before stays recorded");
}
