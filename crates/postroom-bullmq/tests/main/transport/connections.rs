//! How many connections to Redis a process has, however many tenants have queues.

use super::outbox::{Outbox, Running, external, own};
use crate::servers::LONG;
use postroom_bullmq::{JobName, Part, QueuePattern};
use postroom_core::MessageId;
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use std::sync::Arc;

const TENANTS: usize = 300;
/// What docs/bullmq.md says: one for everything, one for all events, and two for each of the 32 queues
/// that workers of ours serve at a time.
const SHARED: usize = 2;
const SERVED: usize = 2 * 32;

async fn enqueue_for_tenants(outbox: &Outbox, tenants: usize) -> Vec<MessageId> {
    let mut ids = Vec::with_capacity(tenants);
    for tenant in 0..tenants {
        let message = outbox.message("order.created", 1).tenant(format!("tenant-{tenant}"));
        ids.push(outbox.enqueue(&message).await);
    }
    ids
}

/// Whoever else is connected: the one that asks.
const ASKING: usize = 1;

async fn connections(server: &Redis) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]).await.unwrap();
    clients.as_str().unwrap().lines().filter(|line| line.starts_with("id=")).count() - ASKING
}

/// Waits until all messages are SENT, and counts the most connections that there were meanwhile.
async fn wait_sent(outbox: &Outbox, server: &Redis, ids: &[MessageId]) -> usize {
    let mut most = 0;
    for id in ids {
        eventually(&format!("{id} to be SENT"), 4 * LONG, async || {
            most = most.max(connections(server).await);
            let record = outbox.find(id).await;
            assert_eq!(record.message.attempts, 0);
            (record.status == "SENT").then_some(())
        })
        .await;
    }
    most
}

/// Our workers serve some queues at a time, and every tenant in turn.
#[tokio::test]
async fn many_tenants_share_the_connections_of_our_workers() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    let mut ids = enqueue_for_tenants(&outbox, TENANTS).await;
    let relay = outbox.start(Part::Relay);
    let most = wait_sent(&outbox, &server, &ids).await;
    assert!(most <= SHARED + SERVED, "{most} connections");
    assert!(most > SHARED, "nobody was seen to work");
    // One that has been served before is served again, and one that is new as well.
    ids = enqueue_for_tenants(&outbox, TENANTS + 1).await.split_off(TENANTS - 1);
    let most = wait_sent(&outbox, &server, &ids).await;
    assert!(most <= SHARED + SERVED, "{most} connections");
    relay.stop().await;
}

/// Queues that others serve are listened to over one connection.
#[tokio::test]
async fn many_tenants_with_workers_of_their_own_share_two_connections() {
    let server = Redis::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    outbox.settings.claim_time = LONG;
    let ids = enqueue_for_tenants(&outbox, TENANTS).await;
    let relay = outbox.start(Part::Relay);
    wait_jobs(&relay, "ADDED", TENANTS).await;
    for (tenant, id) in ids.iter().enumerate() {
        complete(&outbox, &server, &format!("tenant-{tenant}"), id).await;
    }
    let most = wait_sent(&outbox, &server, &ids).await;
    assert!(most <= SHARED, "{most} connections");
    relay.stop().await;
}

/// A relay has so many queues open at a time. Messages of other tenants are put off without an
/// attempt, and have their turn once a queue is empty.
#[tokio::test]
async fn tenants_beyond_the_most_open_queues_wait_for_a_place() {
    const OPEN_MAX: usize = 1_000;
    const MORE: usize = 20;
    let server = Redis::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    outbox.settings.claim_time = LONG;
    let ids = enqueue_for_tenants(&outbox, OPEN_MAX + MORE).await;
    let relay = outbox.start(Part::Relay);
    wait_jobs(&relay, "ADDED", OPEN_MAX).await;
    wait_jobs(&relay, "POSTPONED", MORE).await;
    for (tenant, id) in ids.iter().enumerate().take(2 * MORE) {
        complete(&outbox, &server, &format!("tenant-{tenant}"), id).await;
    }
    wait_jobs(&relay, "ADDED", OPEN_MAX + MORE).await;
    for id in &ids[2 * MORE..] {
        let record = outbox.find(id).await;
        assert_eq!((record.status.as_str(), record.message.attempts), ("CLAIMED", 0));
    }
    relay.stop().await;
}

async fn wait_jobs(relay: &Running, outcome: &str, jobs: usize) {
    eventually(&format!("{jobs} jobs {outcome}"), 4 * LONG, async || {
        let text = relay.metrics.text();
        let counted = text.lines().find(|line| line.contains(&format!("outcome=\"{outcome}\"")))?;
        (counted.rsplit(' ').next()?.parse::<usize>().ok()? >= jobs).then_some(())
    })
    .await;
}

/// Does what a tenant's worker does with its job, and BullMQ then says.
async fn complete(outbox: &Outbox, server: &Redis, tenant: &str, id: &MessageId) {
    let name = outbox.lane.queue.name(&outbox.lane.integration, Some(tenant));
    let (base, job) = (format!("bull:{name}"), JobName { message: id.clone(), dispatch: 1 }.id());
    let script = "redis.call('LREM', KEYS[1] .. ':wait', 0, ARGV[1]) \
                  redis.call('HSET', KEYS[1] .. ':' .. ARGV[1], 'returnvalue', 'null') \
                  redis.call('ZADD', KEYS[1] .. ':completed', 1, ARGV[1]) \
                  redis.call('XADD', KEYS[1] .. ':events', '*', 'event', 'completed', \
                  'returnvalue', 'null', 'jobId', ARGV[1])";
    server.cli(&["EVAL", script, "1", &base, &job]).await.unwrap();
}
