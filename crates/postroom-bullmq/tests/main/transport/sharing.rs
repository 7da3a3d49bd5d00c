//! Queues that are shared: by tenants, by processes, and with others.

use super::outbox::{external, own, soon};
use crate::node::steps;
use crate::servers::{LONG, redis};
use postroom_bullmq::{Part, Queue, QueuePattern};
use postroom_core::Outcome;
use postroom_sinks::MemorySink;
use postroom_testkit::{Bullmq, Redis, eventually};
use serde_json::json;
use std::sync::Arc;

/// Each tenant has a queue of its own, and workers elsewhere find them.
#[tokio::test]
async fn tenants_have_queues_of_their_own() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    let mut dispatching = external(server.address());
    dispatching.lane.queue = outbox.lane.queue.clone();
    dispatching.store = Arc::clone(&outbox.store);
    let mut ids = Vec::new();
    for tenant in ["acme", "globex"] {
        ids.push(outbox.enqueue(&outbox.message("order.created", 1).tenant(tenant)).await);
    }
    ids.push(outbox.enqueue(&outbox.message("order.created", 1)).await);
    // Dispatched by a relay that runs no jobs itself.
    let relay = dispatching.start(Part::Relay);
    for tenant in [Some("acme"), Some("globex"), None] {
        let name = outbox.lane.queue.name(&outbox.lane.integration, tenant);
        let queue = Queue::open(&redis(server.address()), &name).unwrap();
        eventually(&name, LONG, async || (queue.counts().await.ok()?.waiting == 1).then_some(()))
            .await;
    }
    let worker = outbox.start(Part::Worker);
    for id in ids {
        outbox.wait(&id, "SENT").await;
    }
    worker.stop().await;
    relay.stop().await;
}

/// Somebody's own `Queue.add` on our queue is delivered too, and ends in BullMQ alone.
#[tokio::test]
async fn jobs_of_others_are_delivered_from_their_data() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let relay = outbox.start(Part::Relay);
    let queue = outbox.queue();
    let name = queue.name();
    let add = json!([
        ["add", "order.created", {"orderId": 7}, {"jobId": "order-7"}],
        ["add", "order.created", {"payload": {"n": 1}, "sourceEventId": "e-1"}, {}],
    ]);
    steps(Bullmq::V6, outbox.address, name, add).await;
    soon(sink.wait_for(2)).await;
    let mut delivered = sink.delivered();
    delivered.sort_by(|a, b| a.event_id.cmp(&b.event_id));
    assert_eq!(
        delivered
            .iter()
            .map(|one| (one.event_id.as_str(), one.payload.as_str()))
            .collect::<Vec<_>>(),
        [("e-1", r#"{"n":1}"#), ("order-7", r#"{"orderId":7}"#)]
    );
    // One that fails is failed by BullMQ's rules, and is left there for its owner.
    sink.fail_next(1, Outcome::retry("503"));
    let add = json!([["add", "order.created", {"orderId": 8}, {"jobId": "order-8"}]]);
    steps(Bullmq::V6, outbox.address, name, add).await;
    eventually("the job to have failed", LONG, async || {
        (queue.counts().await.ok()?.failed == 1).then_some(())
    })
    .await;
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    outbox.wait(&id, "SENT").await;
    let asked = json!([["job", "order-8"]]);
    let job = &steps(Bullmq::V6, outbox.address, name, asked).await[0];
    assert_eq!((&job["state"], &job["failedReason"]), (&json!("failed"), &json!("503")));
    relay.stop().await;
}

/// Several relays and workers at once: everything is delivered, and nothing twice.
#[tokio::test]
async fn relays_and_workers_share_a_lane() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let ids = outbox.enqueue_many(500).await;
    let running = [
        outbox.start(Part::Relay),
        outbox.start(Part::Relay),
        outbox.start(Part::Worker),
        outbox.start(Part::Worker),
    ];
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    assert_eq!((sink.delivered().len(), sink.attempts()), (500, 500));
    for one in running {
        one.stop().await;
    }
}
