//! How jobs end.

use crate::recording::{Running, quick, start};
use crate::servers::{LONG, job, kept, queue, shared};
use postroom_bullmq::{JobState, Queue, Rate, WorkerOptions};
use postroom_testkit::{Passage, Proxy, Redis, eventually};
use serde_json::json;
use std::time::{Duration, Instant};

async fn wait_state(queue: &Queue, id: &str, expected: JobState) {
    eventually(&format!("{id} to be {expected:?}"), LONG, async || {
        let states = queue.states(&[id.to_owned()]).await.ok()?;
        (states[0] == expected).then_some(())
    })
    .await;
}

fn failed(reason: &str) -> JobState {
    JobState::Failed { reason: reason.to_owned(), unrecoverable: false }
}

#[tokio::test]
async fn jobs_end_as_their_processor_says_and_failed_ones_are_not_tried_again() {
    let (queue, server) = shared().await;
    let worker = start(&queue, quick());
    queue
        .add(&[
            job("a", "x", json!({"n": 1})),
            kept("b", "x", json!({})),
            job("c", "fail", json!({"reason": "no luck"})),
            job("d", "never", json!({"reason": "no use"})),
        ])
        .await
        .unwrap();
    wait_state(&queue, "a", JobState::Gone).await;
    wait_state(&queue, "b", JobState::Completed).await;
    wait_state(&queue, "c", failed("no luck")).await;
    wait_state(&queue, "d", failed("no use")).await;
    assert_eq!(worker.processor.started().len(), 4);
    let by = server.cli(&["HGET", &format!("bull:{}:c", queue.name()), "pb"]).await.unwrap();
    assert_eq!(by, "here");
    worker.stop().await;
}

#[tokio::test]
async fn a_panic_fails_its_job_and_nothing_else() {
    let (queue, server) = shared().await;
    let worker = start(&queue, WorkerOptions { concurrency: 1, ..quick() });
    let jobs = [job("bad", "panic", json!({})), job("good", "x", json!({}))];
    queue.add(&jobs).await.unwrap();
    wait_state(&queue, "bad", failed("the worker panicked while it ran this job")).await;
    wait_state(&queue, "good", JobState::Gone).await;
    let lock = format!("bull:{}:bad:lock", queue.name());
    assert_eq!(server.cli(&["EXISTS", &lock]).await.unwrap(), 0);
    assert_eq!(queue.counts().await.unwrap().active, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_cannot_run_now_comes_again() {
    let (queue, _) = shared().await;
    let worker = start(&queue, quick());
    queue.add(&[job("a", "later", json!({}))]).await.unwrap();
    worker.processor.wait_started(2).await;
    wait_state(&queue, "a", JobState::Gone).await;
    assert_eq!(worker.processor.started(), ["a", "a"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_rate_limit_holds_over_all_workers() {
    let (queue, _) = shared().await;
    let per = Duration::from_millis(400);
    let options = || WorkerOptions { rate: Some(Rate { jobs: 5, per }), ..quick() };
    let jobs: Vec<_> = (0..20).map(|n| job(&format!("j{n}"), "x", json!({}))).collect();
    queue.add(&jobs).await.unwrap();
    let begun = Instant::now();
    let workers = [start(&queue, options()), start(&queue, options())];
    let ran = || workers.iter().map(|worker| worker.processor.started().len()).sum::<usize>();
    eventually("the jobs to run", LONG, async || (ran() == 20).then_some(())).await;
    assert!(begun.elapsed() >= 3 * per, "{:?}", begun.elapsed());
    for worker in workers {
        worker.stop().await;
    }
}

/// A job that is held by a worker which reaches Redis through a proxy.
async fn held_behind(proxy: &Proxy, server: &Redis, name: &str) -> (Queue, Running) {
    // The job stays this worker's for as long as that takes.
    let options = WorkerOptions { lock_time: LONG, ..quick() };
    let worker = start(&queue(proxy.address()), options);
    let queue = queue(server.address());
    queue.add(&[job("a", name, json!({}))]).await.unwrap();
    worker.processor.wait_started(1).await;
    (queue, worker)
}

/// Waits until the word of the job's end, which is said as soon as it has run, must have been lost:
/// every connection was, and was made anew in vain.
async fn wait_lost(proxy: &Proxy, worker: &Running) {
    eventually("the run to end", LONG, async || (worker.processor.ended() == ["a"]).then_some(()))
        .await;
    let before = proxy.connections();
    eventually("connections to be made anew", LONG, async || {
        (proxy.connections() >= before + 4).then_some(())
    })
    .await;
}

/// Whether the request is lost or its answer: the job is completed once, and runs once.
async fn ends_in_spite_of(passage: Passage) {
    let server = Redis::private(&[]).await.unwrap();
    let proxy = Proxy::start(server.address());
    let (queue, worker) = held_behind(&proxy, &server, "hold").await;
    proxy.set(passage);
    worker.processor.let_go();
    wait_lost(&proxy, &worker).await;
    proxy.set(Passage::Open);
    wait_state(&queue, "a", JobState::Gone).await;
    queue.add(&[job("b", "x", json!({}))]).await.unwrap();
    wait_state(&queue, "b", JobState::Gone).await;
    assert_eq!(worker.processor.started(), ["a", "b"], "the job ran again");
    worker.stop().await;
}

#[tokio::test]
async fn a_job_whose_end_did_not_reach_redis_is_ended_again() {
    ends_in_spite_of(Passage::CutRequests).await;
}

#[tokio::test]
async fn a_job_whose_end_was_not_acknowledged_is_over_all_the_same() {
    ends_in_spite_of(Passage::LoseAnswers).await;
}

#[tokio::test]
async fn a_failure_that_did_not_reach_redis_is_told_again() {
    let server = Redis::private(&[]).await.unwrap();
    let proxy = Proxy::start(server.address());
    let (queue, worker) = held_behind(&proxy, &server, "hold_fail").await;
    proxy.set(Passage::CutRequests);
    worker.processor.let_go();
    wait_lost(&proxy, &worker).await;
    proxy.set(Passage::Open);
    wait_state(&queue, "a", failed("held for long enough")).await;
    assert_eq!(worker.processor.started(), ["a"], "the job ran again");
    worker.stop().await;
}

#[tokio::test]
async fn options_that_the_client_cannot_read_are_kept_to() {
    let (queue, server) = shared().await;
    queue.add(&[kept("a", "x", json!({})), kept("b", "fail", json!({}))]).await.unwrap();
    // A field that it cannot read makes it forget all the others.
    for (id, options) in [
        ("a", json!({"attempts": 1, "removeOnComplete": true, "keepLogs": -1})),
        ("b", json!({"attempts": 2, "backoff": {"type": "fixed", "delay": 10}, "keepLogs": -1})),
    ] {
        let key = format!("bull:{}:{id}", queue.name());
        server.cli(&["HSET", &key, "opts", &options.to_string()]).await.unwrap();
    }
    let worker = start(&queue, quick());
    wait_state(&queue, "a", JobState::Gone).await;
    wait_state(&queue, "b", failed("")).await;
    let mut started = worker.processor.started();
    started.sort();
    assert_eq!(started, ["a", "b", "b"]);
    worker.stop().await;
}
