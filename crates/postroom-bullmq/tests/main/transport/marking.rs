//! Workers that report to the outbox and not to BullMQ: they mark their messages' rows, and what they
//! wrote counts.

use super::outbox::{Outbox, external};
use crate::node::count;
use crate::servers::LONG;
use postroom_bullmq::{JobName, Part};
use postroom_core::{MessageId, Record};
use postroom_store::OpenOptions;
use postroom_testkit::{
    Bullmq, OrSkip as _, Postgres, Process, Redis, TestDatabase, eventually, node_with,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MESSAGES: usize = 120;

/// An outbox on PostgreSQL, and what its worker in Node delivers to.
struct Scene {
    outbox: Outbox,
    database: TestDatabase,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn set(server: &Redis) -> Self {
        let database = Postgres::shared().await.database().await;
        postroom_store::migrate(database.url()).await.unwrap();
        let mut outbox = external(server.address());
        outbox.store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
        // Longer than any test waits: nothing here happens because a claim has ended.
        outbox.settings.claim_time = 10 * LONG;
        outbox.lane.retry.base = Duration::from_millis(200);
        outbox.lane.retry.cap = Duration::from_millis(200);
        Self { outbox, database, folder: tempfile::tempdir().unwrap() }
    }

    /// The worker's destination can be reached while this file is there.
    fn up(&self) -> PathBuf {
        self.folder.path().join("up")
    }

    /// A worker that marks rows in one of its ways; a message is dead to it after so many attempts.
    async fn worker(&self, bullmq: Bullmq, way: &str, max_attempts: u32) -> Process {
        let pg = node_with(&["pg@8.13.1"]).or_skip();
        let options = json!({
            "port": self.outbox.address.port(), "queue": self.outbox.queue().name(),
            "pg": pg, "url": self.database.url(), "way": way, "up": self.up(),
            "maxAttempts": max_attempts, "concurrency": 10,
        });
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/marking_worker.mjs");
        let worker = Process::spawn(&mut bullmq.script(&script, &options).unwrap());
        worker.wait_for_line("ready", LONG).await;
        worker
    }

    async fn enqueue(&self, messages: usize, max_attempts: i32) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(messages);
        for _ in 0..messages {
            ids.push(
                self.outbox.enqueue(&self.outbox.message("order.created", max_attempts)).await,
            );
        }
        ids
    }

    /// Waits until every message is as wanted; their records then.
    async fn wait_all(
        &self,
        what: &str,
        ids: &[MessageId],
        is_so: impl Fn(&Record) -> bool,
    ) -> Vec<Record> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let record = eventually(&format!("{id} to be {what}"), LONG, async || {
                Some(self.outbox.find(id).await).filter(|record| is_so(record))
            })
            .await;
            records.push(record);
        }
        records
    }

    async fn open(&self) -> i64 {
        let client = self.database.client().await;
        let open = "SELECT (SELECT count(*) FROM core_outbox.delivery)
                    + (SELECT count(*) FROM core_outbox.parcel)";
        client.query_one(open, &[]).await.unwrap().get(0)
    }
}

/// A worker that catches its error and marks the row FAILED has not delivered: each message is tried
/// again, counted once a time, and SENT once it was delivered.
async fn marked_failed(bullmq: Bullmq, way: &str) {
    let server = Redis::shared().await;
    let scene = Scene::set(server).await;
    let ids = scene.enqueue(MESSAGES, 1_000).await;
    let node = scene.worker(bullmq, way, 1_000).await;
    let relay = scene.outbox.start(Part::Relay);
    // Twice, so that a message that is FAILED already has failed again with the same error.
    let failed = scene.wait_all("failed twice", &ids, |record| record.message.attempts >= 2).await;
    for record in failed {
        assert_ne!(record.status, "SENT", "{bullmq:?} {way}");
        assert_eq!(record.sent_at, None);
        assert_eq!(record.last_error.as_deref(), Some("Error: the broker is down"));
    }
    std::fs::write(scene.up(), "").unwrap();
    for record in scene.wait_all("SENT", &ids, |record| record.status == "SENT").await {
        let id = record.message.id;
        assert_eq!(count(&node, &format!("delivered {id}")), 1, "{bullmq:?} {way}");
        let tried = u32::try_from(count(&node, &format!("failed {id}"))).unwrap();
        assert_eq!(record.message.attempts, tried, "{bullmq:?} {way}");
        let kept = scene.outbox.store.attempts(&id).await.unwrap();
        assert!(kept.iter().all(|one| one.error == "Error: the broker is down"), "{kept:?}");
        assert_eq!(kept.len(), (tried as usize).min(postroom_core::ATTEMPTS_KEPT));
    }
    assert_eq!(scene.open().await, 0, "settled at once, though no claim has ended");
    relay.stop().await;
}

#[tokio::test]
async fn what_a_worker_marks_failed_is_retried_by_the_outbox() {
    marked_failed(Bullmq::V5, "update").await;
    marked_failed(Bullmq::V6, "update").await;
}

#[tokio::test]
async fn what_a_worker_marks_failed_by_saving_the_whole_row_is_retried() {
    marked_failed(Bullmq::V6, "save").await;
}

#[tokio::test]
async fn what_a_worker_marks_failed_and_nothing_else_is_retried() {
    marked_failed(Bullmq::V6, "bare").await;
}

/// DEAD is dead, whoever says so: the worker, or the outbox after so many attempts.
#[tokio::test]
async fn what_a_worker_marks_dead_is_dead_and_what_fails_too_often_is_too() {
    let server = Redis::shared().await;
    for (way, by_worker, by_outbox) in [("update", 1, 9), ("bare", 9, 3)] {
        let scene = Scene::set(server).await;
        let ids = scene.enqueue(5, by_outbox).await;
        let node = scene.worker(Bullmq::V6, way, by_worker).await;
        let relay = scene.outbox.start(Part::Relay);
        let expected = by_worker.min(by_outbox.unsigned_abs());
        for record in scene.wait_all("DEAD", &ids, |record| record.status == "DEAD").await {
            assert_eq!(record.message.attempts, expected);
            assert_eq!(record.last_error.as_deref(), Some("Error: the broker is down"));
            let id = record.message.id;
            assert_eq!(count(&node, &format!("failed {id}")), expected as usize);
            let kept = scene.outbox.store.attempts(&id).await.unwrap();
            assert_eq!(kept.len(), expected as usize);
        }
        relay.stop().await;
    }
}

/// A relay that hears of the job's end only after its claim was lost knows what the worker wrote: it
/// does not erase it when it takes the message again.
#[tokio::test]
async fn what_a_worker_marked_while_no_relay_ran_counts() {
    let server = Redis::shared().await;
    for is_lost in [false, true] {
        let outbox = external(server.address());
        let id = outbox.enqueue(&outbox.message("order.created", 9)).await;
        drop_after_dispatch(&outbox, &id, 1).await;
        outbox.memory.by_hand().set_status(&id, "FAILED").unwrap();
        outbox.complete(server, &JobName { message: id.clone(), dispatch: 1 }.id(), "null").await;
        if is_lost {
            // Another relay may take it before it hears anything.
            outbox.memory.by_hand().expire_claims();
            outbox.store.rescue(10).await.unwrap();
        }
        drop_after_dispatch(&outbox, &id, 2).await;
        let record = outbox.find(&id).await;
        assert_eq!((record.message.attempts, record.sent_at), (1, None), "lost: {is_lost}");
        // A job whose worker leaves the row alone is judged by its end, whatever was before.
        outbox.complete(server, &JobName { message: id.clone(), dispatch: 2 }.id(), "null").await;
        let relay = outbox.start(Part::Relay);
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 1);
        relay.stop().await;
    }
}

/// A relay that is gone once it has put this dispatch's job into the queue.
async fn drop_after_dispatch(outbox: &Outbox, id: &MessageId, dispatch: u32) {
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(id, dispatch).await;
    drop(relay);
}
