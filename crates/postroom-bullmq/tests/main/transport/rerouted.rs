//! A message that is sent to another lane by hand while its job is in a queue.

use super::outbox::{Outbox, external, own};
use crate::servers::LONG;
use crate::servers::redis;
use postroom_bullmq::{Counts, Part, Queue};
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use std::sync::Arc;

/// Another lane of the same process, with a queue of its own.
fn other_lane(outbox: &mut Outbox) -> (String, Queue) {
    let mut other = outbox.lane.clone();
    other.integration.push_str("-other");
    let name = other.queue.name(&other.integration, None);
    let integration = other.integration.clone();
    outbox.others.push(other);
    (integration, Queue::open(&redis(outbox.address), &name).unwrap())
}

async fn wait_counts(queue: &Queue, counts: Counts) {
    eventually(&format!("{counts:?}"), LONG, async || {
        (queue.counts().await.ok()? == counts).then_some(())
    })
    .await;
}

#[tokio::test]
async fn it_goes_there_once_somebody_has_run_its_job() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    // The end of a claim is not what brings it there.
    outbox.settings.claim_time = LONG;
    let (integration, theirs) = other_lane(&mut outbox);
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    outbox.memory.by_hand().set_integration(&id, &integration);
    outbox.complete(server, &id.to_string(), "null").await;
    outbox.tell_completed(server, &id.to_string()).await;
    wait_counts(&theirs, Counts { waiting: 1, ..Counts::default() }).await;
    wait_counts(&outbox.queue(), Counts::default()).await;
    let record = outbox.wait(&id, "CLAIMED").await;
    assert_eq!((record.message.attempts, record.last_error), (0, None));
    relay.stop().await;
}

#[tokio::test]
async fn our_workers_let_it_go_there() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    let (integration, theirs) = other_lane(&mut outbox);
    let queue = outbox.queue();
    let base = format!("bull:{}", queue.name());
    let (meta, paused, wait) =
        (format!("{base}:meta"), format!("{base}:paused"), format!("{base}:wait"));
    server.cli(&["HSET", &meta, "paused", "1"]).await.unwrap();
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    outbox.memory.by_hand().set_integration(&id, &integration);
    for command in [
        &["HDEL", &meta, "paused"][..],
        &["RENAME", &paused, &wait],
        &["ZADD", &format!("{base}:marker"), "0", "0"],
    ] {
        server.cli(command).await.unwrap();
    }
    let record = outbox.wait(&id, "SENT").await;
    assert_eq!((record.message.attempts, sink.attempts()), (0, 1));
    assert_eq!(sink.delivered()[0].integration, integration);
    for queue in [queue, theirs] {
        wait_counts(&queue, Counts::default()).await;
    }
    relay.stop().await;
}
