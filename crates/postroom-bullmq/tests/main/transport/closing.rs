//! Queues of tenants that have nothing to do: they cost no connection.

use super::outbox::{Outbox, external, own};
use crate::servers::{LONG, job, redis};
use postroom_bullmq::{Part, Queue, QueuePattern};
use postroom_core::MessageId;
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const TENANTS: usize = 15;
/// A relay, a worker, the queues that a test looks at, and whoever asks.
const FEW: usize = 8;

fn by_tenant(outbox: &mut Outbox) {
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    // Idle queues are closed after a while that is counted in claim times.
    outbox.settings.claim_time = Duration::from_millis(500);
}

fn tenant(n: usize) -> String {
    format!("tenant-{n}")
}

fn queue_name(outbox: &Outbox, n: usize) -> String {
    outbox.lane.queue.name(&outbox.lane.integration, Some(&tenant(n)))
}

async fn enqueue(outbox: &Outbox, n: usize) -> MessageId {
    outbox.enqueue(&outbox.message("order.created", 3).tenant(tenant(n))).await
}

/// How many connections there are that `what` is said of.
async fn connections(server: &Redis, what: &str) -> usize {
    let list = server.cli(&["CLIENT", "LIST"]).await.unwrap();
    list.as_str().unwrap().lines().filter(|line| line.contains(what)).count()
}

async fn wait_few(server: &Redis) {
    eventually("few connections", LONG, async || {
        (connections(server, "id=").await <= FEW).then_some(())
    })
    .await;
}

#[tokio::test]
async fn queues_of_tenants_are_closed_and_opened_again_when_there_is_a_job() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    by_tenant(&mut outbox);
    let mut ids = Vec::new();
    for n in 0..TENANTS {
        ids.push(enqueue(&outbox, n).await);
    }
    let relay = outbox.start(Part::Relay);
    let worker = outbox.start(Part::Worker);
    let mut most = 0;
    for id in ids {
        outbox.wait(&id, "SENT").await;
        most = most.max(connections(&server, "id=").await);
    }
    assert!(most > TENANTS, "{most}");
    wait_few(&server).await;

    // A later message of each of two tenants, and a job that somebody else adds.
    for n in [3, 7] {
        let id = enqueue(&outbox, n).await;
        outbox.wait(&id, "SENT").await;
    }
    let other = Queue::open(&redis(server.address()), &queue_name(&outbox, 11)).unwrap();
    other.add(&[job("mine", "order.created", json!({"n": 1}))]).await.unwrap();
    eventually("the job of somebody else", LONG, async || {
        sink.delivered().iter().any(|message| message.event_id == "mine").then_some(())
    })
    .await;
    wait_few(&server).await;
    // A process that only works finds what a relay opens again, too.
    let id = enqueue(&outbox, 12).await;
    outbox.wait(&id, "SENT").await;
    worker.stop().await;
    relay.stop().await;
}

/// Those that others work on are closed once all is settled, and not before.
#[tokio::test]
async fn a_queue_with_a_job_stays_open() {
    let server = Redis::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    by_tenant(&mut outbox);
    let mut ids = Vec::new();
    for n in 0..TENANTS {
        ids.push(enqueue(&outbox, n).await);
    }
    let relay = outbox.start(Part::Relay);
    for n in 0..TENANTS {
        wait_job(&outbox, &server, n).await;
    }
    // All but the first are completed.
    for (n, id) in ids.iter().enumerate().skip(1) {
        complete(&outbox, &server, n, id).await;
        outbox.wait(id, "SENT").await;
    }
    eventually("one queue to be listened to", LONG, async || {
        (connections(&server, "cmd=xread").await == 1).then_some(())
    })
    .await;
    complete(&outbox, &server, 0, &ids[0]).await;
    outbox.wait(&ids[0], "SENT").await;
    // After a restart a queue is opened for what ended meanwhile, and for nothing else.
    let late = enqueue(&outbox, 5).await;
    wait_job(&outbox, &server, 5).await;
    relay.stop().await;
    complete(&outbox, &server, 5, &late).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&late, "SENT").await;
    assert!(connections(&server, "cmd=xread").await < TENANTS / 2);
    relay.stop().await;
}

/// There may be very many names, of tenants that were here once.
#[tokio::test]
async fn names_are_read_again_when_there_are_others() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    let worker = outbox.start(Part::Worker);
    let calls = async |command: &str| {
        let stats = server.cli(&["INFO", "commandstats"]).await.unwrap();
        let begin = format!("cmdstat_{command}:calls=");
        let line = stats.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&begin));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<usize>().unwrap())
    };
    let wait_looks = async || {
        let before = calls("scard").await;
        eventually("some looks", LONG, async || (calls("scard").await >= before + 3).then_some(()))
            .await;
    };
    wait_looks().await;
    let set = format!("bull:postroom:queues:{}", outbox.lane.integration);
    for n in 0..2 {
        let queue = Queue::open(&redis(server.address()), &queue_name(&outbox, n)).unwrap();
        queue.add(&[job("mine", "order.created", json!({}))]).await.unwrap();
        server.cli(&["SADD", &set, queue.name()]).await.unwrap();
        eventually("the job", LONG, async || (sink.delivered().len() == n + 1).then_some(())).await;
        wait_looks().await;
    }
    // Once at the start, once for each, and perhaps once since a minute has passed.
    let (looks, reads) = (calls("scard").await, calls("smembers").await);
    assert!(looks >= 9 && (3..=4).contains(&reads), "{reads} of {looks}");
    worker.stop().await;
}

async fn wait_job(outbox: &Outbox, server: &Redis, n: usize) {
    let wait = format!("bull:{}:wait", queue_name(outbox, n));
    eventually("a job", LONG, async || {
        (server.cli(&["LLEN", &wait]).await.ok()? == 1).then_some(())
    })
    .await;
}

/// Leaves a job as BullMQ does when a worker has completed it.
async fn complete(outbox: &Outbox, server: &Redis, n: usize, id: &MessageId) {
    let (base, job) = (format!("bull:{}", queue_name(outbox, n)), id.to_string());
    for command in [
        vec!["LREM", &format!("{base}:wait"), "0", &job],
        vec!["HSET", &format!("{base}:{job}"), "returnvalue", "null", "finishedOn", "1"],
        vec!["ZADD", &format!("{base}:completed"), "1", &job],
    ] {
        server.cli(&command).await.unwrap();
    }
}
