//! How a worker stops.

use crate::recording::{quick, start};
use crate::servers::{ids, job, shared};
use postroom_bullmq::{Counts, JobState, NewJob, WorkerOptions};
use serde_json::json;
use std::time::{Duration, Instant};

/// Well under a second.
const SOON: Duration = Duration::from_millis(500);

#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let (queue, _) = shared().await;
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    let begun = Instant::now();
    worker.stop().await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn jobs_that_run_are_waited_for_and_no_others_are_started() {
    let (queue, _) = shared().await;
    let worker = start(&queue, WorkerOptions { concurrency: 1, ..quick() });
    queue.add(&[job("a", "hold", json!({})), job("b", "x", json!({}))]).await.unwrap();
    let processor = worker.processor.clone();
    processor.wait_started(1).await;
    let stopped = tokio::spawn(worker.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopped.is_finished());
    processor.let_go();
    stopped.await.unwrap();
    let states = queue.states(&ids(&["a", "b"])).await.unwrap();
    assert_eq!(states, [JobState::Gone, JobState::Live]);
    assert_eq!(processor.started(), ["a"]);
}

#[tokio::test]
async fn jobs_that_take_longer_than_the_grace_time_go_back_to_the_queue() {
    let (queue, _) = shared().await;
    let worker = start(&queue, WorkerOptions { grace: Duration::from_millis(300), ..quick() });
    queue.add(&[job("a", "hold", json!({})), job("b", "hold", json!({}))]).await.unwrap();
    worker.processor.wait_started(2).await;
    let begun = Instant::now();
    worker.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
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
        let worker = start(&queue, quick());
        let processor = worker.processor.clone();
        processor.wait_started(500.min(jobs.len() - ran)).await;
        worker.stop().await;
        ran += processor.started().len();
        let counts = queue.counts().await.unwrap();
        assert_eq!((counts.active, counts.failed), (0, 0), "{counts:?}");
        assert_eq!(counts.waiting as usize, jobs.len() - ran, "a job ran twice, or not at all");
    }
}
