//! One queue for us and for BullMQ in Node, in both of its major versions.

use crate::recording::{quick, start};
use crate::servers::{LONG, job, kept, shared};
use crate::{node, worker_process};
use postroom_bullmq::{Added, Counts, JobState, NewJob};
use postroom_testkit::{Bullmq, eventually, skip};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Makes a test for each major version out of each function.
macro_rules! with_both {
    ($($test:ident),* $(,)?) => {
        mod node_5 {
            $(#[tokio::test]
            async fn $test() { super::run(stringify!($test), super::Bullmq::V5, super::$test).await })*
        }
        mod node_6 {
            $(#[tokio::test]
            async fn $test() { super::run(stringify!($test), super::Bullmq::V6, super::$test).await })*
        }
    };
}

with_both!(
    a_node_worker_runs_our_jobs,
    our_worker_runs_jobs_of_node,
    workers_of_both_kinds_share_a_queue,
    our_worker_runs_the_job_of_a_killed_node_worker,
    a_node_worker_runs_the_job_of_our_killed_worker,
    our_jobs_look_right_to_node,
    what_node_pauses_and_resumes_loses_no_job,
    failures_in_node_are_read_with_their_reason,
    a_job_that_both_add_is_there_once,
);

async fn run(name: &str, bullmq: Bullmq, test: impl AsyncFnOnce(Bullmq)) {
    match bullmq.modules() {
        Ok(_) => test(bullmq).await,
        Err(error) => skip(&format!("{name} {bullmq:?}"), &format!("{error:#}")),
    }
}

/// Locks and stalls as short as those of our workers in tests.
fn quick_node() -> Value {
    json!({"concurrency": 10, "lockDuration": 1500, "stalledInterval": 500})
}

fn many(count: usize, name: &str) -> Vec<NewJob> {
    (0..count).map(|n| job(&format!("r{n}"), name, json!({"n": n}))).collect()
}

async fn wait_empty(queue: &postroom_bullmq::Queue) {
    eventually("the queue to be empty", LONG, async || {
        (queue.counts().await.unwrap() == Counts::default()).then_some(())
    })
    .await;
}

async fn a_node_worker_runs_our_jobs(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let worker = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    queue.add(&many(300, "x")).await.unwrap();
    wait_empty(&queue).await;
    eventually("the lines", LONG, async || {
        (node::count(&worker, "completed ") == 300).then_some(())
    })
    .await;
    assert!(worker.stdout().contains(r#"started r7 x {"n":7}"#), "{}", worker.stdout());
}

async fn our_worker_runs_jobs_of_node(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let mut worker = start(&queue, quick());
    worker.wait_up().await;
    let removed = json!({"removeOnComplete": true});
    let jobs: Vec<Value> =
        (0..300).map(|n| json!({"name": "x", "data": {"n": n}, "opts": removed})).collect();
    let steps = json!([
        ["addMany", jobs],
        ["add", "x", {"own": true}, {"jobId": "mine", "removeOnComplete": true}],
        ["add", "fail", {"reason": "no luck"}, {"jobId": "tried", "attempts": 3,
            "backoff": {"type": "fixed", "delay": 10}, "removeOnFail": true}],
        ["add", "x", {}, {"jobId": "kept", "priority": 3, "delay": 50}],
    ]);
    node::steps(bullmq, server.address(), queue.name(), steps).await;
    let end = Counts { completed: 1, ..Counts::default() };
    eventually("the jobs to end", LONG, async || {
        (queue.counts().await.unwrap() == end).then_some(())
    })
    .await;
    let started = worker.processor.started();
    assert_eq!(started.iter().filter(|id| *id == "tried").count(), 3, "as its options say");
    assert_eq!(started.len(), 300 + 1 + 3 + 1);
    let index = started.iter().position(|id| id == "mine").unwrap();
    assert_eq!(worker.processor.job(index).data(), &json!({"own": true}));
    worker.stop().await;
    let job = node::steps(bullmq, server.address(), queue.name(), json!([["job", "kept"]])).await;
    assert_eq!((&job[0]["state"], &job[0]["returnvalue"]), (&json!("completed"), &json!(null)));
}

async fn workers_of_both_kinds_share_a_queue(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let theirs = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    let mut ours = start(&queue, quick());
    ours.wait_up().await;
    let jobs: Vec<Value> = (0..200)
        .map(|n| {
            json!({"name": "slow", "data": {}, "opts":
            {"jobId": format!("n{n}"), "removeOnComplete": true}})
        })
        .collect();
    let steps = json!([["addMany", jobs]]);
    let (added, _) = tokio::join!(
        async { queue.add(&many(200, "slow")).await.unwrap() },
        node::steps(bullmq, server.address(), queue.name(), steps),
    );
    assert!(added.iter().all(|one| *one == Added::New));
    wait_empty(&queue).await;
    let by_us = ours.processor.started();
    eventually("the lines", LONG, async || {
        (node::count(&theirs, "completed ") + by_us.len() == 400).then_some(())
    })
    .await;
    assert!(!by_us.is_empty() && by_us.len() < 400, "{} by us", by_us.len());
    let lines = theirs.stdout();
    let by_node = lines.lines().filter_map(|line| line.strip_prefix("completed "));
    let distinct: BTreeSet<&str> = by_node.chain(by_us.iter().map(String::as_str)).collect();
    assert_eq!(distinct.len(), 400);
    ours.stop().await;
}

async fn our_worker_runs_the_job_of_a_killed_node_worker(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let mut theirs = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    queue.add(&[job("a", "hang", json!({}))]).await.unwrap();
    theirs.wait_for_line("started a", LONG).await;
    let ours = start(&queue, quick());
    theirs.kill9();
    ours.processor.wait_started(1).await;
    wait_empty(&queue).await;
    assert_eq!(ours.processor.started(), ["a"]);
    ours.stop().await;
}

async fn a_node_worker_runs_the_job_of_our_killed_worker(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let mut ours = worker_process::start(server.address(), queue.name()).await;
    queue.add(&[job("a", "hang", json!({}))]).await.unwrap();
    ours.wait_for_line("started a", LONG).await;
    let theirs = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    ours.kill9();
    theirs.wait_for_line("started a", LONG).await;
}

async fn our_jobs_look_right_to_node(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let events = node::events(bullmq, server.address(), queue.name()).await;
    let data = json!({"outboxId": "o-1", "payload": {"sum": 1.5, "name": "Zoë"}, "tenantId": null});
    let jobs = [job("a", "order.placed", data.clone()), kept("b", "fail", json!({"reason": "no"}))];
    queue.add(&jobs).await.unwrap();
    queue.add(&jobs[..1]).await.unwrap();
    let look = json!([["job", "a"], ["job", "b"], ["job", "c"], ["counts"]]);
    let found = node::steps(bullmq, server.address(), queue.name(), look.clone()).await;
    let ours = &found[0];
    for (field, value) in [
        ("id", json!("a")),
        ("name", json!("order.placed")),
        ("data", data),
        ("state", json!("waiting")),
        ("delay", json!(0)),
        ("priority", json!(0)),
        ("attemptsMade", json!(0)),
        ("attemptsStarted", json!(0)),
        ("stalledCounter", json!(0)),
    ] {
        assert_eq!(ours[field], value, "{field} in {ours}");
    }
    let options =
        json!({"attempts": 1, "jobId": "a", "removeOnComplete": true, "removeOnFail": false});
    for (option, value) in options.as_object().unwrap() {
        assert_eq!(&ours["opts"][option], value, "{option} in {ours}");
    }
    assert!(ours["timestamp"].as_u64().unwrap() > 1_700_000_000_000, "{ours}");
    assert_eq!(found[1]["opts"]["removeOnComplete"], false);
    assert_eq!(found[2], Value::Null);
    assert_eq!((&found[3]["waiting"], &found[3]["active"]), (&json!(2), &json!(0)));

    let worker = start(&queue, quick());
    eventually("the jobs to end", LONG, async || {
        let counts = queue.counts().await.unwrap();
        (counts == Counts { failed: 1, ..Counts::default() }).then_some(())
    })
    .await;
    let found = node::steps(bullmq, server.address(), queue.name(), look).await;
    assert_eq!(found[0], Value::Null);
    let failed = &found[1];
    assert_eq!((&failed["state"], &failed["failedReason"]), (&json!("failed"), &json!("no")));
    assert_eq!((&failed["attemptsMade"], &failed["processedBy"]), (&json!(1), &json!("here")));
    assert_eq!((&found[3]["waiting"], &found[3]["failed"]), (&json!(0), &json!(1)));
    queue.remove(&["b".to_owned()]).await.unwrap();
    for line in [
        "added a order.placed",
        "waiting a",
        "duplicated a",
        "active a",
        "completed a",
        "added b fail",
        "active b",
        "failed b no",
        "removed b",
    ] {
        events.wait_for_line(line, LONG).await;
    }
    worker.stop().await;
}

async fn what_node_pauses_and_resumes_loses_no_job(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let step = async |step: Value| {
        node::steps(bullmq, server.address(), queue.name(), json!([step, ["counts"]])).await
    };
    queue.add(&many(3, "x")).await.unwrap();
    step(json!(["pause"])).await;
    queue.add(&many(10, "x")).await.unwrap();
    assert_eq!(queue.counts().await.unwrap(), Counts { waiting: 10, ..Counts::default() });
    let mut ours = start(&queue, quick());
    ours.wait_up().await;
    // Ours has all the time that Node takes to start, and runs nothing while it is paused.
    let theirs = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    assert_eq!(ours.processor.started().len() + node::count(&theirs, "started "), 0);
    step(json!(["resume"])).await;
    wait_empty(&queue).await;
    eventually("the lines", LONG, async || {
        let ran = ours.processor.started().len() + node::count(&theirs, "completed ");
        (ran == 10).then_some(())
    })
    .await;
    ours.stop().await;
}

async fn failures_in_node_are_read_with_their_reason(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let _worker = node::worker(bullmq, server.address(), queue.name(), quick_node()).await;
    let jobs = [
        kept("a", "fail", json!({"reason": "no luck"})),
        kept("b", "never", json!({"reason": "no use"})),
        kept("c", "x", json!({})),
    ];
    queue.add(&jobs).await.unwrap();
    let failed =
        |reason: &str, unrecoverable| JobState::Failed { reason: reason.to_owned(), unrecoverable };
    let expected = [failed("no luck", false), failed("no use", true), JobState::Completed];
    let ids = jobs.map(|job| job.id);
    eventually("the jobs to end", LONG, async || {
        (queue.states(&ids).await.unwrap() == expected).then_some(())
    })
    .await;
}

async fn a_job_that_both_add_is_there_once(bullmq: Bullmq) {
    let (queue, server) = shared().await;
    let steps = json!([["add", "x", {}, {"jobId": "a"}]]);
    node::steps(bullmq, server.address(), queue.name(), steps.clone()).await;
    assert_eq!(queue.add(&[job("a", "x", json!({}))]).await.unwrap(), [Added::Exists]);
    assert_eq!(queue.add(&[job("b", "x", json!({}))]).await.unwrap(), [Added::New]);
    let again = json!([["add", "x", {}, {"jobId": "b"}]]);
    assert_eq!(node::steps(bullmq, server.address(), queue.name(), again).await, [json!("b")]);
    assert_eq!(queue.counts().await.unwrap().waiting, 2);
}
