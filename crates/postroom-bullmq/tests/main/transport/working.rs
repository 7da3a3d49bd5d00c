//! Jobs that our own workers run.

use super::outbox::{CLAIM_TIME, external, own, soon};
use crate::servers::LONG;
use postroom_bullmq::{JobName, Part, Rate, TenantRate, Workers};
use postroom_core::{Outcome, RawJson};
use postroom_relay::{ExternalLanes as _, LaneState};
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test]
async fn messages_are_delivered_and_nothing_is_left() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let ids = outbox.enqueue_many(200).await;
    let relay = outbox.start(Part::Relay);
    for id in ids {
        outbox.wait(&id, "SENT").await;
    }
    assert_eq!((sink.delivered().len(), sink.attempts()), (200, 200));
    let queue = outbox.queue();
    eventually("an empty queue and empty books", LONG, async || {
        let counts = queue.counts().await.ok()?;
        let is_empty = counts == postroom_bullmq::Counts::default();
        (is_empty && relay.transport.health()[0].in_flight == 0).then_some(())
    })
    .await;
    eventually("no claim to be left", LONG, async || {
        (outbox.memory.by_hand().counts().claims == 0).then_some(())
    })
    .await;
    assert_eq!(relay.counted("outbox_sent_total"), 200);
    assert_eq!(relay.counted("outbox_taken_total"), 200);
    relay.stop().await;
}

/// BullMQ never retries: every attempt is the outbox's, and each has a job of its own.
#[tokio::test]
async fn a_sink_that_always_fails_ends_dead_after_exactly_its_maximum() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    sink.fail_next(100, Outcome::retry("503 from the receiver"));
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.settings.dead_letter = Some("file:dead".to_owned());
    let id = outbox.enqueue(&outbox.message("order.created", 7)).await;
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!((record.message.attempts, sink.attempts()), (7, 7));
    assert_eq!(outbox.store.attempts(&id).await.unwrap().len(), 7);
    assert_eq!(record.last_error.as_deref(), Some("503 from the receiver"));
    let announced = outbox.store.integrations().await.unwrap();
    assert!(announced.contains(&"file:dead".to_owned()), "{announced:?}");
    let queue = outbox.queue();
    eventually("the failed jobs to be removed", LONG, async || {
        (queue.counts().await.ok()?.failed == 0).then_some(())
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_rejected_message_is_dead_at_once() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::reject("400 from the receiver"));
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 7)).await;
    let relay = outbox.start(Part::Relay);
    assert_eq!(outbox.wait(&id, "DEAD").await.message.attempts, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_panic_in_a_sink_is_a_failed_attempt() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let deadly = outbox.message("order.created", 3);
    sink.panic_on(&deadly.event_id);
    let id = outbox.enqueue(&deadly).await;
    let other = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!((record.message.attempts, sink.attempts()), (3, 4));
    assert!(record.last_error.unwrap().starts_with("the sink panicked"));
    outbox.wait(&other, "SENT").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_sink_that_takes_too_long_is_a_failed_attempt() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    sink.hold();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    if let Workers::Own(delivery) = &mut outbox.lane.workers {
        delivery.timeout = Duration::from_millis(50);
    }
    let id = outbox.enqueue(&outbox.message("order.created", 2)).await;
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!(record.last_error.as_deref(), Some("no answer within 50ms"));
    relay.stop().await;
}

/// The job is gone while it runs: it is delivered twice, recognisably, and recorded once.
#[tokio::test]
async fn a_lost_lock_ends_in_one_record() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    sink.hold();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.settings.claim_time = CLAIM_TIME;
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    soon(sink.wait_held(1)).await;
    server.cli(&["FLUSHALL"]).await.unwrap();
    soon(sink.wait_held(2)).await;
    sink.release();
    let record = outbox.wait(&id, "SENT").await;
    assert_eq!(record.message.attempts, 0);
    soon(sink.wait_for(2)).await;
    let delivered = sink.delivered();
    assert_eq!(delivered[0].event_id, delivered[1].event_id);
    relay.stop().await;
}

/// A worker that stops gives its job back, and another one runs it.
#[tokio::test]
async fn a_worker_that_stops_loses_nothing() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let ids = outbox.enqueue_many(300).await;
    // One that runs no jobs itself.
    let mut dispatching = external(server.address());
    dispatching.store = Arc::clone(&outbox.store);
    let relay = dispatching.start(Part::Relay);
    for round in 1..=3 {
        let worker = outbox.start(Part::Worker);
        soon(sink.wait_for(round * 50)).await;
        worker.stop().await;
    }
    assert_eq!(sink.attempts(), sink.delivered().len());
    let worker = outbox.start(Part::Worker);
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    assert_eq!((sink.delivered().len(), sink.attempts()), (300, 300));
    worker.stop().await;
    relay.stop().await;
}

/// A destination that refuses everything pauses its lane; no attempt is used.
#[tokio::test]
async fn a_refusal_pauses_the_lane() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::refuse("401: correct the credentials"));
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    eventually("the pause", LONG, async || {
        let health = relay.transport.health().pop()?;
        (health.state == LaneState::Paused).then_some(())
    })
    .await;
    let record = outbox.wait(&id, "SENT").await;
    assert_eq!((record.message.attempts, sink.attempts()), (0, 2));
    relay.stop().await;
}

/// The job of a message that was settled otherwise delivers nothing.
#[tokio::test]
async fn a_stale_job_is_not_delivered() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    outbox.take_for_queue().await;
    let queue = outbox.queue();
    let data = RawJson::trusted(format!(r#"{{"outboxId":"{id}"}}"#));
    let stale = |id| postroom_bullmq::NewJob {
        id,
        name: "order.created".to_owned(),
        data: data.clone(),
        keep_finished: false,
        failed_before: 0,
    };
    let worker = outbox.start(Part::Worker);
    // A number that does not count yet, and then one of a message that is SENT.
    queue.add(&[stale(JobName { message: id.clone(), dispatch: 9 }.id())]).await.unwrap();
    queue.add(&[stale(JobName { message: id.clone(), dispatch: 1 }.id())]).await.unwrap();
    outbox.wait(&id, "SENT").await;
    queue.add(&[stale(JobName { message: id, dispatch: 2 }.id())]).await.unwrap();
    eventually("all jobs to have ended", LONG, async || {
        let counts = queue.counts().await.ok()?;
        (counts == postroom_bullmq::Counts::default()).then_some(())
    })
    .await;
    assert_eq!(sink.attempts(), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_queue_keeps_its_rate() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    if let Workers::Own(delivery) = &mut outbox.lane.workers {
        delivery.rate = Some(Rate { jobs: 5, per: Duration::from_millis(500) });
    }
    let ids = outbox.enqueue_many(16).await;
    let began = Instant::now();
    let relay = outbox.start(Part::Relay);
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    // Four turns of five: at least two whole pauses lie between the first and the last.
    assert!(began.elapsed() >= Duration::from_millis(1_000), "{:?}", began.elapsed());
    relay.stop().await;
}

#[tokio::test]
async fn a_tenant_keeps_its_rate_and_holds_up_no_other() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    let acme = TenantRate { per_second: 10.0, burst: 1 };
    outbox.tenants.named.insert("acme".to_owned(), acme);
    let mut slow = Vec::new();
    for _ in 0..10 {
        slow.push(outbox.enqueue(&outbox.message("order.created", 1).tenant("acme")).await);
    }
    let fast = outbox.enqueue(&outbox.message("order.created", 1).tenant("globex")).await;
    let began = Instant::now();
    let relay = outbox.start(Part::Relay);
    let fast = outbox.wait(&fast, "SENT").await;
    let mut last = None;
    for id in slow {
        let record = outbox.wait(&id, "SENT").await;
        assert_eq!(record.message.attempts, 0);
        last = last.max(record.sent_at);
    }
    assert!(fast.sent_at < last);
    assert!(began.elapsed() >= Duration::from_millis(850), "{:?}", began.elapsed());
    relay.stop().await;
}
