//! One tenant's queue that cannot be looked at: nobody else is concerned.

use super::outbox::{Outbox, external, own};
use crate::servers::{LONG, job, redis};
use postroom_bullmq::{Part, Queue, QueuePattern};
use postroom_relay::ExternalLanes;
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn by_tenant(outbox: &mut Outbox) {
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
}

fn queue_of(outbox: &Outbox, tenant: &str) -> Queue {
    let name = outbox.lane.queue.name(&outbox.lane.integration, Some(tenant));
    Queue::open(&redis(outbox.address), &name).unwrap()
}

/// Where BullMQ counts a queue's jobs.
fn counter(queue: &Queue) -> String {
    format!("bull:{}:id", queue.name())
}

/// Whether a lane stands still since a key is of the wrong type.
fn is_broken(transport: &dyn ExternalLanes, lane: usize) -> bool {
    let error = transport.health()[lane].error.clone();
    error.is_some_and(|error| error.contains("WRONGTYPE"))
}

#[tokio::test]
async fn the_others_are_found_and_it_is_too_once_it_is_mended() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    by_tenant(&mut outbox);
    let (broken, fine) = (queue_of(&outbox, "acme"), queue_of(&outbox, "globex"));
    let set = format!("bull:postroom:queues:{}", outbox.lane.integration);
    server.cli(&["SADD", &set, broken.name(), fine.name()]).await.unwrap();
    broken.add(&[job("theirs", "order.created", json!({}))]).await.unwrap();
    server.cli(&["DEL", &counter(&broken)]).await.unwrap();
    server.cli(&["LPUSH", &counter(&broken), "x"]).await.unwrap();
    fine.add(&[job("mine", "order.created", json!({}))]).await.unwrap();
    let worker = outbox.start(Part::Worker);
    let delivered = async |id: &str| {
        eventually(&format!("the job {id}"), LONG, async || {
            sink.delivered().iter().any(|message| message.event_id == id).then_some(())
        })
        .await;
    };
    delivered("mine").await;
    assert!(is_broken(&*worker.transport, 0));
    server.cli(&["DEL", &counter(&broken)]).await.unwrap();
    delivered("theirs").await;
    eventually("an end of the fault", LONG, async || {
        (!is_broken(&*worker.transport, 0)).then_some(())
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn the_lanes_of_other_queues_go_on() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    let mut other = outbox.lane.clone();
    other.integration.push_str("-other");
    outbox.others.push(other);
    by_tenant(&mut outbox);
    // A queue without a job is looked at after ten times as long.
    outbox.settings.claim_time = Duration::from_millis(500);
    let queue = queue_of(&outbox, "acme");
    let id = outbox.enqueue(&outbox.message("order.created", 3).tenant("acme")).await;
    let relay = outbox.start(Part::Relay);
    eventually("a job", LONG, async || (queue.counts().await.ok()?.waiting == 1).then_some(()))
        .await;
    server.cli(&["DEL", &counter(&queue)]).await.unwrap();
    server.cli(&["LPUSH", &counter(&queue), "x"]).await.unwrap();
    let (base, job) = (format!("bull:{}", queue.name()), id.to_string());
    for command in [
        vec!["LREM", &format!("{base}:wait"), "0", &job],
        vec!["HSET", &format!("{base}:{job}"), "returnvalue", "null", "finishedOn", "1"],
        vec!["ZADD", &format!("{base}:completed"), "1", &job],
    ] {
        server.cli(&command).await.unwrap();
    }
    outbox.wait(&id, "SENT").await;
    eventually("the fault to show", LONG, async || {
        assert!(!is_broken(&*relay.transport, 1));
        is_broken(&*relay.transport, 0).then_some(())
    })
    .await;
    assert!(!is_broken(&*relay.transport, 1));
    server.cli(&["DEL", &counter(&queue)]).await.unwrap();
    eventually("an end of the fault", LONG, async || {
        (!is_broken(&*relay.transport, 0)).then_some(())
    })
    .await;
    relay.stop().await;
}
