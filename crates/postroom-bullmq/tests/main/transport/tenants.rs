//! Tenants with a queue each, on one lane: what has no room in one holds up none of the others.

use super::outbox::{Outbox, external};
use crate::recording::{quick, start};
use crate::servers::redis;
use postroom_bullmq::{Part, Queue, QueuePattern, WorkerOptions};
use postroom_core::MessageId;
use postroom_relay::ExternalLanes as _;
use postroom_testkit::{Redis, eventually};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::slice;
use std::time::Duration;
use tokio::time::Instant;

const CAP: u64 = 20;
const LONG: Duration = Duration::from_secs(60);

/// A lane whose tenants have workers of their own, or none.
fn by_tenant(address: SocketAddr) -> Outbox {
    let mut outbox = external(address);
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    outbox.lane.outstanding_max = usize::try_from(CAP).unwrap();
    outbox
}

impl Outbox {
    async fn enqueue_of(&self, tenant: &str, n: usize) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(n);
        for _ in 0..n {
            ids.push(self.enqueue(&self.message("order.created", 1).tenant(tenant)).await);
        }
        ids
    }

    fn queue_of(&self, tenant: &str) -> Queue {
        let name = self.lane.queue.name(&self.lane.integration, Some(tenant));
        Queue::open(&redis(self.address), &name).unwrap()
    }

    /// Waits until all of them are SENT, in which no attempt was used.
    async fn wait_sent(&self, ids: &[MessageId]) {
        for id in ids {
            assert_eq!(self.wait(id, "SENT").await.message.attempts, 0);
        }
    }
}

async fn waiting(queue: &Queue) -> u64 {
    queue.counts().await.unwrap().waiting
}

#[tokio::test]
async fn a_tenant_without_a_worker_holds_up_no_other() {
    let server = Redis::shared().await;
    let outbox = by_tenant(server.address());
    let acme = outbox.enqueue_of("acme", 300).await;
    let globex = outbox.enqueue_of("globex", 100).await;
    let (full, other) = (outbox.queue_of("acme"), outbox.queue_of("globex"));
    let worker = start(&other, quick());
    let relay = outbox.start(Part::Relay);
    for id in &globex {
        outbox.wait_sent(slice::from_ref(id)).await;
        assert!(waiting(&full).await <= CAP);
    }
    // Nothing was lost or used up of what waits, and it is seen to wait.
    for (place, id) in acme.iter().enumerate() {
        let record = outbox.find(id).await;
        let is_queued = place < usize::try_from(CAP).unwrap();
        let status = record.status.as_str();
        assert!(
            if is_queued { status == "CLAIMED" } else { status != "SENT" },
            "{place}: {status}"
        );
        assert_eq!((record.message.attempts, record.last_error), (0, None), "{place}");
    }
    // New ones of either are treated alike.
    let later = outbox.enqueue_of("acme", 10).await;
    outbox.wait_sent(&outbox.enqueue_of("globex", 10).await).await;
    assert_eq!(waiting(&full).await, CAP);

    // One at a time, so that the order in which they are done is that of the queue; and none is
    // taken for left behind where the machine stands still for a while.
    let late = start(&full, WorkerOptions { concurrency: 1, lock_time: 2 * LONG, ..quick() });
    outbox.wait_sent(&acme).await;
    outbox.wait_sent(&later).await;
    let done = late.processor.started();
    assert_eq!(done.len(), 310);
    assert_eq!(done.iter().collect::<HashSet<_>>().len(), 310);
    let first: Vec<String> = acme.iter().take(CAP as usize).map(MessageId::to_string).collect();
    assert_eq!(done[..first.len()], first);
    late.stop().await;
    worker.stop().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_tenant_whose_queue_cannot_be_used_holds_up_no_other() {
    let server = Redis::shared().await;
    let outbox = by_tenant(server.address());
    let acme = outbox.enqueue_of("acme", 300).await;
    outbox.enqueue_of("globex", 10).await;
    let (broken, other) = (outbox.queue_of("acme"), outbox.queue_of("globex"));
    let wait = format!("bull:{}:wait", broken.name());
    server.cli(&["SET", &wait, "not a list"]).await.unwrap();
    let relay = outbox.start(Part::Relay);
    eventually("what is behind", LONG, async || (waiting(&other).await == 10).then_some(())).await;
    assert!(relay.transport.health()[0].error.as_deref().unwrap().contains("WRONGTYPE"));
    server.cli(&["DEL", &wait]).await.unwrap();
    let worker = start(&broken, quick());
    outbox.wait_sent(&acme).await;
    worker.stop().await;
    relay.stop().await;
}

/// Behind a long backlog of a full queue, another tenant's message is reached once each of those in
/// front was put off, and they are not put off more often than so many times a second afterwards.
#[tokio::test]
async fn a_long_backlog_of_a_full_queue_costs_little() {
    const BACKLOG: u64 = 2_000;
    let server = Redis::shared().await;
    let outbox = by_tenant(server.address());
    outbox.enqueue_of("acme", usize::try_from(BACKLOG + CAP).unwrap()).await;
    let behind = outbox.enqueue_of("globex", 1).await;
    let other = outbox.queue_of("globex");
    let began = Instant::now();
    let relay = outbox.start(Part::Relay);
    eventually("what is behind", LONG, async || (waiting(&other).await == 1).then_some(())).await;
    let postponed = || {
        let integration = &outbox.lane.integration;
        let line =
            format!("outbox_jobs_total{{integration=\"{integration}\",outcome=\"POSTPONED\"}}");
        relay.counted(&line)
    };
    // Twice each: the pace of the queue is not known at first.
    let most = |passed: Duration| 2 * BACKLOG + 510 * (passed.as_secs() + 1);
    let counted = postponed();
    assert!(counted >= BACKLOG, "{counted}");
    assert!(counted <= most(began.elapsed()), "{counted} after {:?}", began.elapsed());
    eventually("some to come again", LONG, async || (postponed() >= 3 * BACKLOG).then_some(()))
        .await;
    let (counted, passed) = (postponed(), began.elapsed());
    assert!(counted <= most(passed), "{counted} after {passed:?}");
    // What is new is taken at once all the same.
    outbox.enqueue_of("globex", 5).await;
    eventually("new ones", LONG, async || (waiting(&other).await == 6).then_some(())).await;
    assert_eq!(waiting(&outbox.queue_of("acme")).await, CAP);
    let worker = start(&other, quick());
    outbox.wait_sent(&behind).await;
    worker.stop().await;
    relay.stop().await;
}
