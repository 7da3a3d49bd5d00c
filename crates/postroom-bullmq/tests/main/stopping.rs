//! How a worker stops.

use crate::recording::{quick, start};
use crate::servers::{LONG, ids, job, shared};
use postroom_bullmq::{Counts, JobState, NewJob, WorkerOptions};
use postroom_testkit::eventually;
use serde_json::json;
use std::time::{Duration, Instant};

/// Well under the second for which BullMQ's client waits for a job.
const SOON: Duration = Duration::from_millis(500);
/// How often a worker is stopped to see how long that takes: a busy machine is not always.
const TRIES: usize = 10;

#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let (queue, _) = shared().await;
    let mut took = Duration::MAX;
    for _ in 0..TRIES {
        let mut worker = start(&queue, quick());
        worker.wait_up().await;
        let begun = Instant::now();
        worker.stop().await;
        took = took.min(begun.elapsed());
        if took < SOON {
            return;
        }
    }
    panic!("{took:?}");
}

#[tokio::test]
async fn jobs_that_run_are_waited_for_and_no_others_are_started() {
    let (queue, _) = shared().await;
    let worker = start(&queue, WorkerOptions { grace: LONG, ..quick() });
    queue.add(&[job("a", "hold", json!({}))]).await.unwrap();
    let processor = worker.processor.clone();
    processor.wait_started(1).await;
    let stopped = tokio::spawn(worker.stop());
    // It is told before it could get another.
    tokio::task::yield_now().await;
    queue.add(&[job("b", "hold", json!({}))]).await.unwrap();
    let next = start(&queue, quick());
    next.processor.wait_started(1).await;
    assert_eq!(next.processor.started(), ["b"]);
    assert!(!stopped.is_finished());
    processor.let_go();
    stopped.await.unwrap();
    let states = queue.states(&ids(&["a", "b"])).await.unwrap();
    assert_eq!(states, [JobState::Gone, JobState::Live]);
    assert_eq!(processor.started(), ["a"]);
    next.processor.let_go();
    next.stop().await;
}

#[tokio::test]
async fn jobs_that_take_longer_than_the_grace_time_go_back_to_the_queue() {
    let (queue, _) = shared().await;
    let grace = Duration::from_millis(300);
    let worker = start(&queue, WorkerOptions { grace, lock_time: 2 * LONG, ..quick() });
    queue.add(&[job("a", "hold", json!({})), job("b", "hold", json!({}))]).await.unwrap();
    worker.processor.wait_started(2).await;
    let begun = Instant::now();
    worker.stop().await;
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    assert_eq!(queue.counts().await.unwrap(), Counts { waiting: 2, ..Counts::default() });
    // Another worker gets them at once.
    let next = start(&queue, quick());
    next.processor.wait_started(2).await;
    next.processor.let_go();
    next.processor.let_go();
    next.stop().await;
    assert_eq!(queue.counts().await.unwrap(), Counts::default());
}

#[tokio::test]
async fn a_worker_that_stops_in_full_swing_leaves_nothing_behind() {
    let (queue, _) = shared().await;
    let jobs: Vec<NewJob> = (0..5_000).map(|n| job(&format!("j{n}"), "x", json!({}))).collect();
    queue.add(&jobs).await.unwrap();
    let mut ran = 0;
    while ran < jobs.len() {
        // No lock ends where the machine stands still for a while.
        let worker = start(&queue, WorkerOptions { lock_time: 2 * LONG, ..quick() });
        let processor = worker.processor.clone();
        processor.wait_started(500.min(jobs.len() - ran)).await;
        worker.stop().await;
        ran += processor.started().len();
        // What was on its way to the worker when it stopped goes back.
        let counts = eventually("no job to be active", LONG, async || {
            queue.counts().await.ok().filter(|counts| counts.active == 0)
        })
        .await;
        assert_eq!(counts.failed, 0, "{counts:?}");
        assert_eq!(counts.waiting as usize, jobs.len() - ran, "a job ran twice, or not at all");
    }
}
