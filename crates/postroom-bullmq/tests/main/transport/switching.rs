//! A lane that is moved from BullMQ to the relay itself, and back.

use super::outbox::{external, own, soon};
use crate::servers::LONG;
use chrono::Utc;
use postroom_bullmq::{Counts, Part};
use postroom_core::Outcome;
use postroom_relay::{Lane, Relay};
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

const MESSAGES: usize = 20;
const FAILING: usize = 5;

/// Jobs wait in the queue all the while: those whose messages were delivered meanwhile are dropped,
/// those of the others are what they were.
#[tokio::test]
async fn a_lane_that_leaves_bullmq_and_comes_back_loses_and_doubles_nothing() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let mut dispatching = external(server.address());
    dispatching.store = Arc::clone(&outbox.store);
    let ids = outbox.enqueue_many(MESSAGES).await;
    let relay = dispatching.start(Part::Relay);
    for id in &ids {
        outbox.wait_waiting(id, 1).await;
    }
    relay.stop().await;

    sink.fail_next(FAILING, Outcome::retry("503"));
    let mut lane = Lane::new(&outbox.lane.integration, Arc::new(sink.clone()));
    lane.retry.base = Duration::from_secs(3_600);
    lane.retry.cap = lane.retry.base;
    let direct = Relay::new(Arc::clone(&outbox.store), outbox.settings.clone(), vec![lane]);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { direct.run(async { _ = stopped.await }).await });
    eventually("all to be tried", LONG, async || {
        let counts = outbox.store.status_counts().await.ok()?;
        let of = |status| counts.of(status);
        use postroom_core::Status::{Failed, Sent};
        (of(Sent) as usize == MESSAGES - FAILING && of(Failed) as usize == FAILING).then_some(())
    })
    .await;
    stop.send(()).unwrap();
    soon(running).await.unwrap().unwrap();
    let queue = outbox.queue();
    assert_eq!(queue.counts().await.unwrap().waiting, MESSAGES as u64);

    let relay = outbox.start(Part::Relay);
    for id in &ids {
        if outbox.find(id).await.status == "FAILED" {
            outbox.memory.by_hand().set_due_at(id, Utc::now());
        }
        outbox.wait(id, "SENT").await;
    }
    eventually("an empty queue", LONG, async || {
        (queue.counts().await.ok()? == Counts::default()).then_some(())
    })
    .await;
    let delivered = sink.delivered();
    let distinct: HashSet<&str> = delivered.iter().map(|one| one.event_id.as_str()).collect();
    assert_eq!((delivered.len(), distinct.len()), (MESSAGES, MESSAGES));
    assert_eq!(sink.attempts(), MESSAGES + FAILING);
    for id in ids {
        assert!(outbox.find(&id).await.message.attempts <= 1);
    }
    relay.stop().await;
}
