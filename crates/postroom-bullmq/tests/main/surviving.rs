//! What a worker survives.

use crate::recording::{quick, start};
use crate::servers::{LONG, job, name, queue, shared};
use crate::worker_process;
use postroom_bullmq::{JobState, Queue, WorkerOptions};
use postroom_testkit::{Redis, eventually};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

async fn wait_gone(queue: &Queue, id: &str) {
    eventually(&format!("{id} to be gone"), LONG, async || {
        let states = queue.states(&[id.to_owned()]).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_lock_is_noticed_and_the_job_runs_again() {
    let (queue, server) = shared().await;
    let worker = start(&queue, quick());
    queue.add(&[job("a", "hold", json!({}))]).await.unwrap();
    worker.processor.wait_started(1).await;
    let first = worker.processor.job(0);
    assert!(!first.is_lost());
    server.cli(&["DEL", &format!("bull:{}:a:lock", queue.name())]).await.unwrap();
    eventually("the loss to be noticed", LONG, async || first.is_lost().then_some(())).await;
    worker.processor.wait_started(2).await;
    assert!(!worker.processor.job(1).is_lost());
    worker.processor.let_go();
    worker.processor.let_go();
    wait_gone(&queue, "a").await;
    assert_eq!(worker.processor.started(), ["a", "a"]);
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_takes_longer_than_its_lock_stays_with_its_worker() {
    let (queue, server) = shared().await;
    let options = || WorkerOptions { lock_time: Duration::from_secs(3), ..quick() };
    let workers = [start(&queue, options()), start(&queue, options())];
    queue.add(&[job("a", "hold", json!({}))]).await.unwrap();
    let ran = || workers.iter().map(|worker| worker.processor.started().len()).sum::<usize>();
    eventually("the job to start", LONG, async || (ran() == 1).then_some(())).await;
    // It is renewed three times within its time: more often, and that is over.
    let lock = format!("bull:{}:a:lock", queue.name());
    let (mut left, mut renewed) = (i64::MAX, 0);
    eventually("the lock to be renewed again and again", LONG, async || {
        let now = server.cli(&["PTTL", &lock]).await.ok()?.as_i64()?;
        renewed += u32::from(now > left);
        left = now;
        (renewed == 5).then_some(())
    })
    .await;
    for worker in &workers {
        worker.processor.let_go();
    }
    wait_gone(&queue, "a").await;
    assert_eq!(ran(), 1);
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn the_job_of_a_killed_worker_is_run_by_another() {
    let (queue, server) = shared().await;
    let mut killed = worker_process::start(server.address(), &name()).await;
    queue.add(&[job("a", "hang", json!({}))]).await.unwrap();
    killed.wait_for_line("started a", LONG).await;
    killed.kill9();
    let worker = start(&queue, quick());
    worker.processor.wait_started(1).await;
    wait_gone(&queue, "a").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_is_left_behind_twice_fails_without_a_third_run() {
    let (queue, server) = shared().await;
    queue.add(&[job("a", "hang", json!({}))]).await.unwrap();
    for _ in 0..2 {
        let mut killed = worker_process::start(server.address(), &name()).await;
        killed.wait_for_line("started a", LONG).await;
        killed.kill9();
    }
    let worker = start(&queue, quick());
    eventually("the job to fail", LONG, async || {
        let states = queue.states(&["a".to_owned()]).await.unwrap();
        matches!(&states[0], JobState::Failed { reason, .. } if reason.contains("stalled"))
            .then_some(())
    })
    .await;
    assert!(worker.processor.started().is_empty());
    worker.stop().await;
}

/// Hangs up on so many who want to connect.
async fn turn_away(address: SocketAddr, tries: usize) {
    let listener = TcpListener::bind(address).await.unwrap();
    for _ in 0..tries {
        let connected = timeout(LONG, listener.accept()).await.expect("a try to connect");
        drop(connected.unwrap());
    }
}

#[tokio::test]
async fn a_worker_goes_on_after_redis_was_restarted_empty() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    for round in 0..3 {
        server.crash().await.unwrap();
        worker.wait_away().await;
        if round == 2 {
            // Every try to connect has failed more than once.
            turn_away(server.address(), 10).await;
        }
        server.start_again().await.unwrap();
        let id = format!("j{round}");
        eventually("Redis to take a job", LONG, async || {
            queue.add(&[job(&id, "x", json!({}))]).await.ok()
        })
        .await;
        worker.processor.wait_started(round + 1).await;
        worker.wait_up().await;
        wait_gone(&queue, &id).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_job_that_runs_while_redis_is_restarted_empty_is_told_that_it_is_lost() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    let worker = start(&queue, quick());
    queue.add(&[job("a", "hold", json!({}))]).await.unwrap();
    worker.processor.wait_started(1).await;
    server.crash().await.unwrap();
    server.start_again().await.unwrap();
    let held = worker.processor.job(0);
    eventually("the loss to be noticed", LONG, async || held.is_lost().then_some(())).await;
    worker.processor.let_go();
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_goes_on_after_every_connection_was_killed() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    for round in 0..5 {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
        let id = format!("j{round}");
        eventually("Redis to take a job", LONG, async || {
            queue.add(&[job(&id, "x", json!({}))]).await.ok()
        })
        .await;
        worker.processor.wait_started(round + 1).await;
        wait_gone(&queue, &id).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_goes_on_once_it_is_let_in_again() {
    let server = Redis::private(&[]).await.unwrap();
    let queue = queue(server.address());
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]).await.unwrap();
    server.cli(&["-a", "secret", "CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    worker.wait_away().await;
    // Its client has tried to connect more than once, and has been turned away.
    eventually("it to be turned away", LONG, async || {
        let told = server.cli(&["-a", "secret", "INFO", "errorstats"]).await.ok()?;
        let refused = told.as_str()?.lines().find_map(|line| {
            line.strip_prefix("errorstat_NOAUTH:count=")?.trim().parse::<usize>().ok()
        });
        (refused? >= 6).then_some(())
    })
    .await;
    server.cli(&["-a", "secret", "CONFIG", "SET", "requirepass", ""]).await.unwrap();
    eventually("Redis to take a job", LONG, async || {
        queue.add(&[job("a", "x", json!({}))]).await.ok()
    })
    .await;
    worker.processor.wait_started(1).await;
    wait_gone(&queue, "a").await;
    worker.stop().await;
}
