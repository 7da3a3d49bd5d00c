//! Reading what happened.

use crate::recording::{quick, start};
use crate::servers::{LONG, job, kept, queue, shared};
use postroom_bullmq::{Event, EventKind, Events, Position};
use postroom_testkit::{Redis, eventually};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

async fn next(events: &mut Events) -> Event {
    timeout(LONG, events.next()).await.expect("an event in time").unwrap()
}

/// The next event of this kind about this job.
async fn await_event(events: &mut Events, id: &str, kind: &EventKind) -> Event {
    loop {
        let event = next(events).await;
        if event.job_id.as_deref() == Some(id) && event.kind == *kind {
            return event;
        }
    }
}

#[tokio::test]
async fn a_jobs_life_is_told_in_order() {
    let (queue, _) = shared().await;
    let mut events = queue.events(Position::START);
    let worker = start(&queue, quick());
    queue.add(&[job("a", "x", json!({}))]).await.unwrap();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&EventKind::Completed) {
        let event = next(&mut events).await;
        if event.job_id.as_deref() == Some("a") {
            kinds.push(event.kind);
        }
    }
    use EventKind::{Active, Added, Completed, Waiting};
    assert_eq!(kinds, [Added, Waiting, Active, Completed]);
    queue.add(&[kept("b", "fail", json!({"reason": "no luck"}))]).await.unwrap();
    let failed = EventKind::Failed { reason: "no luck".to_owned() };
    await_event(&mut events, "b", &failed).await;
    queue.add(&[job("b", "x", json!({}))]).await.unwrap();
    await_event(&mut events, "b", &EventKind::Duplicated).await;
    queue.remove(&["b".to_owned()]).await.unwrap();
    await_event(&mut events, "b", &EventKind::Removed).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_stored_position_is_where_the_next_reader_goes_on() {
    let (queue, _) = shared().await;
    assert_eq!(queue.stored_position().await.unwrap(), None);
    queue.add(&[job("a", "x", json!({})), job("b", "x", json!({}))]).await.unwrap();
    let mut events = queue.events(Position::START);
    let first = await_event(&mut events, "a", &EventKind::Waiting).await;
    queue.store_position(&first.position).await.unwrap();
    drop(events);
    let stored = queue.stored_position().await.unwrap().unwrap();
    assert_eq!(stored, first.position);
    let mut events = queue.events(stored);
    assert_eq!(next(&mut events).await.job_id.as_deref(), Some("b"));
}

#[tokio::test]
async fn from_the_end_only_what_comes_is_told_even_if_nobody_asks_for_long() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    queue.add(&[job("old", "x", json!({}))]).await.unwrap();
    let mut events = queue.events(Position::END);
    eventually("it to listen", LONG, async || {
        server.cli(&["CLIENT", "LIST"]).await.ok()?.as_str()?.contains("cmd=xread").then_some(())
    })
    .await;
    // Cancelled again and again, it misses nothing.
    for _ in 0..5 {
        assert!(timeout(Duration::from_millis(20), events.next()).await.is_err());
    }
    queue.add(&[job("new", "x", json!({}))]).await.unwrap();
    assert_eq!(next(&mut events).await.job_id.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_reader_says_that_redis_is_away_and_goes_on_when_it_is_back() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    let mut events = queue.events(Position::START);
    queue.add(&[job("a", "x", json!({}))]).await.unwrap();
    await_event(&mut events, "a", &EventKind::Waiting).await;
    server.crash().await.unwrap();
    let error = timeout(LONG, events.next()).await.unwrap().unwrap_err();
    assert!(error.is_away(), "{error}");
    server.start_again().await.unwrap();
    queue.add(&[job("b", "x", json!({}))]).await.unwrap();
    loop {
        if let Ok(event) = timeout(LONG, events.next()).await.unwrap() {
            assert_eq!(event.job_id.as_deref(), Some("b"));
            break;
        }
    }
}
