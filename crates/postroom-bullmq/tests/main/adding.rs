//! Adding jobs, looking at them and removing them.

use crate::recording::{quick, start};
use crate::servers::{LONG, ids, job, kept, queue, redis, shared};
use postroom_bullmq::{Added, Counts, FinishedPage, JobState, NewJob, Queue, QueueError};
use postroom_core::RawJson;
use postroom_testkit::{Redis, eventually};
use serde_json::json;

#[tokio::test]
async fn a_job_is_new_once_and_exists_while_it_is_there() {
    let (queue, _) = shared().await;
    let jobs = [job("a", "x", json!({})), job("b", "x", json!({}))];
    assert_eq!(queue.add(&jobs[..1]).await.unwrap(), [Added::New]);
    assert_eq!(queue.add(&jobs).await.unwrap(), [Added::Exists, Added::New]);
    assert_eq!(queue.add(&[]).await.unwrap(), []);
    assert_eq!(queue.counts().await.unwrap(), Counts { waiting: 2, ..Counts::default() });
    let states = queue.states(&ids(&["a", "b", "c"])).await.unwrap();
    assert_eq!(states, [JobState::Live, JobState::Live, JobState::Gone]);
}

#[tokio::test]
async fn the_same_id_twice_in_one_call_is_added_once() {
    let (queue, _) = shared().await;
    let twice = [job("a", "x", json!({})), job("a", "x", json!({}))];
    assert_eq!(queue.add(&twice).await.unwrap(), [Added::New, Added::Exists]);
}

#[tokio::test]
async fn many_jobs_are_run_in_the_order_in_which_they_were_added() {
    let (queue, server) = shared().await;
    let jobs: Vec<NewJob> = (0..1_200).map(|n| job(&format!("j{n}"), "x", json!(n))).collect();
    let added = queue.add(&jobs).await.unwrap();
    assert!(added.iter().all(|one| *one == Added::New) && added.len() == jobs.len());
    let key = format!("bull:{}:wait", queue.name());
    let waiting = server.cli(&["LRANGE", &key, "0", "-1"]).await.unwrap();
    let waiting: Vec<String> = serde_json::from_value(waiting).unwrap();
    assert!(waiting.iter().rev().eq(jobs.iter().map(|job| &job.id)));
}

#[tokio::test]
async fn data_is_kept_byte_for_byte() {
    let (queue, server) = shared().await;
    let text = "{\"z\": 1.50,\n \"a\": 12345678901234567890, \"é\": \"🦀\"}";
    let data = RawJson::trusted(text);
    let job = NewJob { data, ..job("a", "x", json!({})) };
    queue.add(&[job]).await.unwrap();
    let key = format!("bull:{}:a", queue.name());
    assert_eq!(server.cli(&["HGET", &key, "data"]).await.unwrap(), text);
}

#[tokio::test]
async fn ids_that_bullmq_refuses_are_refused_and_the_others_are_added() {
    let (queue, _) = shared().await;
    let jobs = ["7", "a", "b:c", ""].map(|id| job(id, "x", json!({})));
    let added = queue.add(&jobs).await.unwrap();
    assert!(matches!(&added[0], Added::Refused(why) if why.contains("number")), "{added:?}");
    assert_eq!(added[1], Added::New);
    assert!(matches!(&added[2], Added::Refused(why) if why.contains("colon")), "{added:?}");
    assert!(matches!(&added[3], Added::Refused(_)), "{added:?}");
    assert_eq!(queue.counts().await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_job_that_is_too_large_for_redis_is_refused_and_its_neighbours_are_added() {
    let server = Redis::private(&["--proto-max-bulk-len", "1mb"]).await.unwrap();
    let queue = queue(server.address());
    let jobs = [
        job("small", "x", json!({})),
        job("large", "x", json!("x".repeat(1_500_000))),
        job("next", "x", json!({})),
    ];
    let added = queue.add(&jobs).await.unwrap();
    assert_eq!((&added[0], &added[2]), (&Added::New, &Added::New), "{added:?}");
    assert!(matches!(&added[1], Added::Refused(why) if why.contains("bulk")), "{added:?}");
}

#[tokio::test]
async fn a_full_memory_is_a_matter_of_time_and_not_of_the_job() {
    let server = Redis::private(&["--maxmemory", "3mb"]).await.unwrap();
    let queue = queue(server.address());
    let large = json!("x".repeat(100_000));
    let error = eventually("Redis to be full", LONG, async || {
        let jobs: Vec<NewJob> =
            (0..100).map(|n| job(&format!("j{n}"), "x", large.clone())).collect();
        queue.add(&jobs).await.err()
    })
    .await;
    assert!(error.is_away(), "{error}");
    assert!(error.to_string().contains("OOM"), "{error}");
}

/// A job that exists and waits nowhere would never be run, and never be added again.
#[tokio::test]
async fn a_queue_that_cannot_take_jobs_keeps_nothing_of_them() {
    let (queue, server) = shared().await;
    let jobs = [job("a", "n", json!({}))];
    for (key, value) in [("wait", "no list"), ("events", "no stream"), ("id", "no number")] {
        let key = format!("bull:{}:{key}", queue.name());
        server.cli(&["SET", &key, value]).await.unwrap();
        assert!(queue.add(&jobs).await.is_err(), "{key}");
        server.cli(&["DEL", &key]).await.unwrap();
        assert_eq!(queue.states(&ids(&["a"])).await.unwrap(), [JobState::Gone], "{key}");
    }
    assert_eq!(queue.add(&jobs).await.unwrap(), [Added::New]);
}

#[tokio::test]
async fn finished_jobs_that_are_kept_are_found_and_removed_with_all_their_keys() {
    let (queue, server) = shared().await;
    let worker = start(&queue, quick());
    queue
        .add(&[
            kept("good", "x", json!({})),
            kept("bad", "fail", json!({"reason": "no luck"})),
            kept("held", "hold", json!({})),
            job("gone", "x", json!({})),
        ])
        .await
        .unwrap();
    let failed = JobState::Failed { reason: "no luck".to_owned(), unrecoverable: false };
    let expected = [JobState::Completed, failed.clone(), JobState::Live, JobState::Gone];
    let all = ids(&["good", "bad", "held", "gone"]);
    eventually("the jobs to end", LONG, async || {
        (queue.states(&all).await.unwrap() == expected).then_some(())
    })
    .await;
    let counts = Counts { active: 1, completed: 1, failed: 1, ..Counts::default() };
    assert_eq!(queue.counts().await.unwrap(), counts);

    let mut found = look_through(&queue).await;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("bad".to_owned(), failed), ("good".to_owned(), JobState::Completed)];
    assert_eq!(found, expected);

    server.cli(&["RPUSH", &format!("bull:{}:good:logs", queue.name()), "a line"]).await.unwrap();
    queue.remove(&all).await.unwrap();
    let states = queue.states(&all).await.unwrap();
    assert_eq!(states, [JobState::Gone, JobState::Gone, JobState::Live, JobState::Gone]);
    let pattern = format!("bull:{}:*", queue.name());
    let keys = server.cli(&["KEYS", &pattern]).await.unwrap().to_string();
    assert!(!keys.contains("good") && !keys.contains("bad"), "{keys}");
    // Repeated, it does nothing.
    queue.remove(&all).await.unwrap();
    worker.processor.let_go();
    worker.stop().await;
}

#[tokio::test]
async fn all_of_many_finished_jobs_are_found() {
    let (queue, _) = shared().await;
    let jobs: Vec<NewJob> = (0..700)
        .map(|n| kept(&format!("j{n}"), if n % 2 == 0 { "x" } else { "fail" }, json!({})))
        .collect();
    queue.add(&jobs).await.unwrap();
    let worker = start(&queue, quick());
    eventually("the jobs to end", LONG, async || {
        let counts = queue.counts().await.unwrap();
        (counts.completed + counts.failed == 700).then_some(())
    })
    .await;
    let mut found: Vec<String> = look_through(&queue).await.into_iter().map(|(id, _)| id).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 700);
    worker.stop().await;
}

async fn look_through(queue: &Queue) -> Vec<(String, JobState)> {
    let (mut found, mut next) = (Vec::new(), Some(FinishedPage::default()));
    while let Some(page) = next {
        let page = queue.finished(page, 100).await.unwrap();
        found.extend(page.jobs);
        next = page.next;
    }
    found
}

#[tokio::test]
async fn names_that_bullmq_refuses_are_a_fault_of_the_configuration() {
    let (queue, server) = shared().await;
    drop(queue);
    for bad in ["", "outbox:kafka"] {
        let error = Queue::open(&redis(server.address()), bad).unwrap_err();
        assert!(matches!(error, QueueError::Misconfigured { .. }), "{error}");
    }
}
