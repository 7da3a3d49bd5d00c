//! Lanes whose jobs are run by somebody's own BullMQ code in Node.

use super::outbox::{CLAIM_TIME, Outbox, external, wait_counted};
use crate::node::{count, steps};
use crate::servers::LONG;
use postroom_bullmq::{Counts, Part};
use postroom_testkit::{Bullmq, Process, Redis, eventually};
use serde_json::{Value, json};
use std::path::Path;

const VERSIONS: [Bullmq; 2] = [Bullmq::V5, Bullmq::V6];

/// A worker that knows nothing of Postroom.
pub(crate) async fn worker(bullmq: Bullmq, outbox: &Outbox, mut options: Value) -> Process {
    options["port"] = outbox.address.port().into();
    options["queue"] = outbox.queue().name().into();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/outbox_worker.mjs");
    let worker = Process::spawn(&mut bullmq.script(&script, &options).unwrap());
    worker.wait_for_line("ready", LONG).await;
    worker
}

async fn wait_empty(outbox: &Outbox) {
    let queue = outbox.queue();
    eventually("an empty queue", LONG, async || {
        (queue.counts().await.ok()? == Counts::default()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_node_says_is_recorded_and_its_jobs_are_removed() {
    let server = Redis::private(&[]).await.unwrap();
    for bullmq in VERSIONS {
        let outbox = external(server.address());
        let sent = outbox.enqueue_many(50).await;
        let failing = outbox.enqueue(&outbox.message("fail", 3)).await;
        let never = outbox.enqueue(&outbox.message("never", 9)).await;
        let node = worker(bullmq, &outbox, json!({"concurrency": 5})).await;
        let relay = outbox.start(Part::Relay);
        for id in &sent {
            let record = outbox.wait(id, "SENT").await;
            assert_eq!(record.message.attempts, 0, "{bullmq:?}");
        }
        let record = outbox.wait(&failing, "DEAD").await;
        assert_eq!(record.message.attempts, 3, "{bullmq:?}");
        assert_eq!(record.last_error.as_deref(), Some("not today"));
        assert_eq!(count(&node, &format!("started {failing}")), 3);
        assert_eq!(count(&node, &format!("started {failing}-3")), 1);
        let record = outbox.wait(&never, "DEAD").await;
        assert_eq!(record.message.attempts, 1, "{bullmq:?}");
        assert_eq!(record.last_error.as_deref(), Some("not today"));
        wait_empty(&outbox).await;
        assert_eq!(count(&node, "delivered"), 50);
        relay.stop().await;
        server.cli(&["FLUSHALL"]).await.unwrap();
    }
}

/// What happened while no relay ran is found when one does: by the events from where it was, or by
/// looking at the jobs where even those are gone.
#[tokio::test]
async fn what_was_missed_is_settled_after_a_restart() {
    let server = Redis::private(&[]).await.unwrap();
    for (bullmq, lose_events) in [(VERSIONS[0], true), (VERSIONS[1], false)] {
        let outbox = external(server.address());
        let sent = outbox.enqueue_many(20).await;
        let failing = outbox.enqueue(&outbox.message("fail", 1)).await;
        let never = outbox.enqueue(&outbox.message("never", 9)).await;
        let relay = outbox.start(Part::Relay);
        for id in sent.iter().chain([&failing, &never]) {
            outbox.wait_waiting(id, 1).await;
        }
        relay.stop().await;
        let node = worker(bullmq, &outbox, json!({"concurrency": 5})).await;
        let queue = outbox.queue();
        eventually("all jobs to have finished", LONG, async || {
            let counts = queue.counts().await.ok()?;
            (counts.completed == 20 && counts.failed == 2).then_some(())
        })
        .await;
        drop(node);
        assert_eq!(outbox.find(&sent[0]).await.sent_at, None);
        if lose_events {
            server.cli(&["DEL", &format!("bull:{}:events", queue.name())]).await.unwrap();
        }
        let relay = outbox.start(Part::Relay);
        for id in sent {
            outbox.wait(&id, "SENT").await;
        }
        for id in [failing, never] {
            let record = outbox.wait(&id, "DEAD").await;
            assert_eq!(record.message.attempts, 1);
            assert_eq!(record.last_error.as_deref(), Some("not today"));
        }
        wait_empty(&outbox).await;
        relay.stop().await;
        server.cli(&["FLUSHALL"]).await.unwrap();
    }
}

/// A worker in Node that is killed again and again costs an attempt, and BullMQ decides when.
#[tokio::test]
async fn a_job_that_is_left_behind_twice_is_a_failed_attempt() {
    let server = Redis::private(&[]).await.unwrap();
    let outbox = external(server.address());
    let id = outbox.enqueue(&outbox.message("hang", 1)).await;
    let relay = outbox.start(Part::Relay);
    let options = json!({"lockDuration": 3000, "stalledInterval": 500});
    for round in 0..2 {
        let mut node = worker(Bullmq::V6, &outbox, options.clone()).await;
        node.wait_for_line("started", LONG).await;
        assert_eq!(outbox.find(&id).await.message.attempts, 0, "round {round}");
        node.kill9();
    }
    let _last = worker(Bullmq::V6, &outbox, options).await;
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!(record.message.attempts, 1);
    assert!(record.last_error.unwrap().contains("stalled"));
    relay.stop().await;
}

/// Our jobs are what Node's own would be.
#[tokio::test]
async fn our_jobs_look_right_to_node() {
    let server = Redis::private(&[]).await.unwrap();
    let outbox = external(server.address());
    let message = outbox
        .message("order.created", 3)
        .event_id("event-1")
        .tenant("acme")
        .correlation("request-1")
        .headers(&json!({"traceparent": "00-1"}));
    let id = outbox.enqueue(&message).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    for bullmq in VERSIONS {
        let asked = json!([["job", id.to_string()], ["counts"]]);
        let answers = steps(bullmq, outbox.address, outbox.queue().name(), asked).await;
        let (job, counts) = (&answers[0], &answers[1]);
        assert_eq!((&job["id"], &job["name"]), (&json!(id), &json!("order.created")));
        assert_eq!(
            job["data"],
            json!({
                "outboxId": id, "eventType": "order.created", "payload": {"reason": "not today"},
                "headers": {"traceparent": "00-1"}, "tenantId": "acme",
                "correlationId": "request-1", "sourceEventId": "event-1",
            })
        );
        assert_eq!(job["opts"]["attempts"], 1);
        assert_eq!(job["opts"]["jobId"], json!(id));
        assert_eq!(job["state"], "waiting");
        assert_eq!(counts["waiting"], 1, "{counts}");
    }
    relay.stop().await;
}

/// Every claim is kept while jobs wait, however long.
#[tokio::test]
async fn a_job_that_waits_longer_than_a_claim_stays_claimed() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.claim_time = 2 * CLAIM_TIME;
    let extended = outbox.count_keeps();
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    let since = outbox.wait(&id, "CLAIMED").await.locked_at;
    // Three times within its time: after five it would be over.
    wait_counted(&extended, 5).await;
    let record = outbox.find(&id).await;
    assert_eq!((record.status.as_str(), record.locked_at), ("CLAIMED", since));
    outbox.wait_number(&id, 1).await;
    relay.stop().await;
}
