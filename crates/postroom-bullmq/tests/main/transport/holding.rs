//! What stands in the way of some does not hold up the others.

use super::outbox::{CLAIM_TIME, external, own, soon};
use crate::servers::{LONG, redis};
use postroom_bullmq::{JobState, Part, Queue, QueuePattern};
use postroom_core::NewMessage;
use postroom_relay::{Beside as _, LaneState};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, Redis, eventually};
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn a_locked_message_holds_up_no_other_outcome() {
    let server = Redis::shared().await;
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.unwrap();
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    outbox.store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    let locked = outbox.enqueue(&outbox.message("order.created", 1)).await;
    // An outcome waits for this lock, a claim does not.
    let client = database.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM core_outbox.integration_outbox WHERE id = $1 FOR UPDATE";
    client.query_one(lock, &[&locked]).await.unwrap();

    let relay = outbox.start(Part::Relay);
    soon(sink.wait_for(1)).await;
    for id in outbox.enqueue_many(20).await {
        assert_eq!(outbox.wait(id, "SENT").await.message.attempts, 0);
    }
    assert_ne!(outbox.find(locked).await.status, "SENT");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(outbox.wait(locked, "SENT").await.message.attempts, 0);
    assert_eq!(sink.attempts(), 21);
    relay.stop().await;
}

/// A finished job is all that is left of its word until the database has taken it.
#[tokio::test]
async fn a_job_whose_outcome_is_refused_is_kept() {
    let server = Redis::shared().await;
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.unwrap();
    let mut outbox = external(server.address());
    outbox.store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(id, 1).await;
    let client = database.client().await;
    let table = "ALTER TABLE core_outbox.integration_outbox";
    let refuse = format!("{table} ADD CONSTRAINT no_more CHECK (status <> 'SENT')");
    client.batch_execute(&refuse).await.unwrap();
    // By hand, as BullMQ leaves it.
    let (queue, job) = (outbox.queue(), id.to_string());
    let key = format!("bull:{}", queue.name());
    for command in [
        vec!["LREM", &format!("{key}:wait"), "0", &job],
        vec!["HSET", &format!("{key}:{job}"), "returnvalue", "null", "finishedOn", "1"],
        vec!["ZADD", &format!("{key}:completed"), "1", &job],
    ] {
        server.cli(&command).await.unwrap();
    }
    // Looked at more than once.
    tokio::time::sleep(CLAIM_TIME).await;
    let states = queue.states(std::slice::from_ref(&job)).await.unwrap();
    assert_eq!(states, [JobState::Completed]);
    client.batch_execute(&format!("{table} DROP CONSTRAINT no_more")).await.unwrap();
    assert_eq!(outbox.wait(id, "SENT").await.message.attempts, 0);
    eventually("the job to be removed", LONG, async || {
        let states = queue.states(std::slice::from_ref(&job)).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_queue_that_cannot_be_used_pauses_its_own_lane() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    let mut other = outbox.lane.clone();
    other.integration.push_str("-other");
    let fine = NewMessage::new(&other.integration, "order.created").json(&json!({}));
    let queue = other.queue.name(&other.integration, None);
    let queue = Queue::open(&redis(server.address()), &queue).unwrap();
    outbox.others.push(other);
    let wait = format!("bull:{}:wait", outbox.queue().name());
    server.cli(&["SET", &wait, "not a list"]).await.unwrap();
    let held = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    let shown = eventually("the pause to be shown", LONG, async || {
        let health = relay.transport.health();
        (health[0].state == LaneState::Paused).then_some(health)
    })
    .await;
    assert!(shown[0].error.as_deref().unwrap().contains("WRONGTYPE"), "{shown:?}");
    assert_eq!(shown[1].state, LaneState::Running);
    for n in 1..=3 {
        outbox.enqueue(&fine.clone().event_id(format!("e-{n}"))).await;
        eventually("a job in the other queue", LONG, async || {
            (queue.counts().await.ok()?.waiting == n).then_some(())
        })
        .await;
    }
    assert_eq!(relay.transport.health()[1].state, LaneState::Running);
    server.cli(&["DEL", &wait]).await.unwrap();
    outbox.wait_waiting(held, 1).await;
    assert_eq!(outbox.find(held).await.message.attempts, 0);
    eventually("the lane to run", LONG, async || {
        (relay.transport.health()[0].state == LaneState::Running).then_some(())
    })
    .await;
    relay.stop().await;
}

/// The cap is each queue's: two tenants have twice as many jobs as one.
#[tokio::test]
async fn tenants_have_room_of_their_own() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    outbox.lane.outstanding_max = 8;
    for n in 0..12 {
        let tenant = ["acme", "globex"][n % 2];
        outbox.enqueue(&outbox.message("order.created", 1).tenant(tenant)).await;
    }
    let relay = outbox.start(Part::Relay);
    for tenant in ["acme", "globex"] {
        let name = outbox.lane.queue.name(&outbox.lane.integration, Some(tenant));
        let queue = Queue::open(&redis(server.address()), &name).unwrap();
        eventually(&name, LONG, async || (queue.counts().await.ok()?.waiting == 6).then_some(()))
            .await;
    }
    relay.stop().await;
}
