//! What becomes a job, and when.

use super::outbox::{SMALL_VALUES, external, own, wait_counted};
use crate::servers::LONG;
use postroom_bullmq::{JobData, JobName, JobState, NewJob, Part};
use postroom_core::{Outcome, RawJson};
use postroom_relay::{ExternalLanes as _, LaneState};
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use std::sync::Arc;
use std::time::Duration;

/// A job that somebody had failed and kept would swallow every later one of its id.
#[tokio::test]
async fn a_kept_failed_job_never_swallows_a_redispatch() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::retry("503"));
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 5)).await;
    outbox.take_for_queue().await;
    let queue = outbox.queue();
    // The first attempt, and nobody there to remove its job.
    let worker = outbox.start(Part::Worker);
    let first = JobName { message: id.clone(), dispatch: 1 }.id();
    let data = RawJson::trusted(format!(r#"{{"outboxId":"{id}"}}"#));
    let job = NewJob {
        id: first.clone(),
        name: "n".into(),
        data,
        keep_finished: false,
        failed_before: 0,
    };
    queue.add(&[job]).await.unwrap();
    let record = outbox.wait(&id, "FAILED").await;
    assert_eq!((record.message.attempts, record.last_error.as_deref()), (1, Some("503")));
    eventually("the failed job", LONG, async || {
        let states = queue.states(std::slice::from_ref(&first)).await.ok()?;
        matches!(states[0], JobState::Failed { .. }).then_some(())
    })
    .await;
    worker.stop().await;

    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "SENT").await;
    assert_eq!((record.message.attempts, sink.attempts()), (1, 2));
    eventually("the failed job to be removed", LONG, async || {
        let states = queue.states(std::slice::from_ref(&first)).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
    relay.stop().await;
}

/// A job of somebody who failed it before the outbox heard of it: that is one failed attempt, and
/// the next dispatch has an id of its own.
#[tokio::test]
async fn a_job_that_failed_unheard_is_one_failed_attempt() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let id = outbox.enqueue(&outbox.message("order.created", 5)).await;
    let queue = outbox.queue();
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    drop(relay);
    // By hand, as BullMQ leaves it.
    let key = format!("bull:{}", queue.name());
    let job = format!("{key}:{id}");
    for command in [
        vec!["LREM", &format!("{key}:wait"), "0", &id.to_string()],
        vec!["HSET", &job, "failedReason", "lost", "finishedOn", "1", "stacktrace", "[]"],
        vec!["ZADD", &format!("{key}:failed"), "1", &id.to_string()],
        vec!["DEL", &format!("{key}:events")],
    ] {
        server.cli(&command).await.unwrap();
    }
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 2).await;
    let record = outbox.find(&id).await;
    assert_eq!((record.message.attempts, record.last_error.as_deref()), (1, Some("lost")));
    relay.stop().await;
}

#[tokio::test]
async fn a_waiting_job_is_never_doubled() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let ids = outbox.enqueue_many(20).await;
    let queue = outbox.queue();
    for round in 0..3 {
        let relay = outbox.start(Part::Relay);
        eventually("all in hand", LONG, async || {
            let health = relay.transport.health();
            (health[0].in_flight == ids.len()).then_some(())
        })
        .await;
        // They are in hand before they are in the queue, and counted after.
        let (outcome, other) = if round == 0 { ("ADDED", "FOUND") } else { ("FOUND", "ADDED") };
        let counted = |outcome: &str| {
            let text = relay.metrics.text();
            let ending = format!("outcome=\"{outcome}\"}} ");
            let values = text.lines().filter_map(|line| line.split_once(&ending));
            values.filter_map(|(_, value)| value.parse::<usize>().ok()).sum::<usize>()
        };
        eventually(outcome, LONG, async || (counted(outcome) >= ids.len()).then_some(())).await;
        assert!(round == 0 || counted(other) == 0, "{}", relay.metrics.text());
        let counts = queue.counts().await.unwrap();
        assert_eq!((counts.waiting, counts.failed), (20, 0), "round {round}");
        // Dies, and its claims expire.
        drop(relay);
    }
    for id in ids {
        outbox.wait_number(&id, 1).await;
    }
}

#[tokio::test]
async fn what_redis_lost_is_dispatched_again_within_one_claim_time() {
    let server = Redis::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    // Long enough for a busy machine to do all of it in what is left after a look.
    let claim_time = Duration::from_secs(12);
    outbox.settings.claim_time = claim_time;
    let ids = outbox.enqueue_many(50).await;
    let relay = outbox.start(Part::Relay);
    for id in &ids {
        outbox.wait_waiting(id, 1).await;
    }
    for (dispatch, lose) in [(2, "FLUSHALL"), (3, "restart")] {
        let began = tokio::time::Instant::now();
        if lose == "restart" {
            server.crash().await.unwrap();
            server.start_again().await.unwrap();
        } else {
            server.cli(&["FLUSHALL"]).await.unwrap();
        }
        for id in &ids {
            outbox.wait_waiting(id, dispatch).await;
        }
        // Being started again takes its time too.
        let most = claim_time + Duration::from_secs(u64::from(lose == "restart") * 5);
        assert!(began.elapsed() < most, "{lose}: {:?}", began.elapsed());
    }
    assert_eq!(outbox.queue().counts().await.unwrap().waiting, 50);
    for id in ids {
        assert_eq!(outbox.find(&id).await.message.attempts, 0);
    }
    relay.stop().await;
}

#[tokio::test]
async fn redis_being_away_costs_no_attempt_and_is_shown() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let relay = outbox.start(Part::Relay);
    let first = outbox.enqueue(&outbox.message("order.created", 1)).await;
    outbox.wait(&first, "SENT").await;
    server.crash().await.unwrap();
    let ids = outbox.enqueue_many(10).await;
    let shown = eventually("the pause to be shown", LONG, async || {
        let health = relay.transport.health().pop()?;
        (health.state == LaneState::Paused).then_some(health)
    })
    .await;
    assert!(shown.error.unwrap().contains("Redis at"), "it says what is away");
    server.start_again().await.unwrap();
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    eventually("the lane to run", LONG, async || {
        (relay.transport.health()[0].state == LaneState::Running).then_some(())
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_job_that_redis_refuses_costs_an_attempt() {
    let server = Redis::private(SMALL_VALUES).await.unwrap();
    let mut outbox = external(server.address());
    let refused = outbox.enqueue_too_large(2);
    let taken = outbox.enqueue(&outbox.message("order.created", 2)).await;
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&refused, "DEAD").await;
    assert_eq!(record.message.attempts, 2);
    let error = record.last_error.unwrap();
    assert!(error.starts_with("the queue refused the job"), "{error}");
    outbox.wait_waiting(&taken, 1).await;
    assert_eq!(outbox.find(&taken).await.message.attempts, 0);
    relay.stop().await;
}

#[tokio::test]
async fn outstanding_jobs_are_capped() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.lane.outstanding_max = 5;
    let extended = outbox.count_keeps();
    outbox.enqueue_many(20).await;
    let relay = outbox.start(Part::Relay);
    let queue = outbox.queue();
    eventually("the queue to be full", LONG, async || {
        (queue.counts().await.ok()?.waiting == 5).then_some(())
    })
    .await;
    // Through several sweeps, which come as often.
    wait_counted(&extended, 4).await;
    assert_eq!(queue.counts().await.unwrap().waiting, 5);
    // The lane waits for room, and touches nothing meanwhile.
    let counted = relay.metrics.text();
    assert!(!counted.contains("POSTPONED"), "{counted}");
    relay.stop().await;
}

#[tokio::test]
async fn a_reference_is_enough_for_our_workers() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.lane.data = JobData::Reference;
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&id, "SENT").await;
    assert_eq!(sink.delivered()[0].payload.as_str(), r#"{"reason":"not today"}"#);
    relay.stop().await;
}

#[tokio::test]
async fn what_cannot_be_delivered_at_all_is_dead_and_never_queued() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.payload_limit = 10;
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!(record.message.attempts, 0);
    assert_eq!(outbox.queue().counts().await.unwrap().waiting, 0);
    relay.stop().await;
}
