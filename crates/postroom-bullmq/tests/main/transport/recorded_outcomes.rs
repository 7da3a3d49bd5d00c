//! What is recorded is what happened: nothing is SENT that nobody has delivered, and nothing that
//! was delivered stays open.

use super::external::worker;
use super::outbox::{external, own, soon};
use crate::node::count;
use crate::servers::{LONG, kept, name};
use chrono::{TimeDelta, Utc};
use postroom_bullmq::{JobName, JobState, Part, QueuePattern, Workers};
use postroom_core::{NewMessage, Sink};
use postroom_relay::ExternalLanes as _;
use postroom_sinks::MemorySink;
use postroom_testkit::{Bullmq, Redis, eventually};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A worker that serves another lane on the same queue puts the job off.
#[tokio::test]
async fn a_job_that_is_not_ours_to_run_is_never_taken_for_done() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.lane.queue = QueuePattern::parse(&name()).unwrap();
    let sink = MemorySink::new();
    let mut other = own(server.address(), Arc::new(sink.clone()));
    other.store = Arc::clone(&outbox.store);
    other.lane.queue = outbox.lane.queue.clone();
    other.lane.integration.push_str("-other");
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let relay = outbox.start(Part::Relay);
    let working = other.start(Part::Worker);
    let queue = outbox.queue();
    eventually("the job to be put off", LONG, async || {
        (queue.counts().await.ok()?.delayed == 1).then_some(())
    })
    .await;
    let record = outbox.find(&id).await;
    assert_eq!((record.status.as_str(), record.message.attempts), ("CLAIMED", 0));
    assert_eq!(sink.attempts(), 0);
    working.stop().await;
    relay.stop().await;
}

/// A job is dropped since its message was closed by hand; opened again, the message is delivered.
#[tokio::test]
async fn a_job_that_was_dropped_is_never_taken_for_done() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let sink = MemorySink::new();
    let mut ours = own(server.address(), Arc::new(sink.clone()));
    ours.store = Arc::clone(&outbox.store);
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    relay.stop().await;
    outbox.memory.by_hand().set_status(&id, "DEAD").unwrap();
    let working = ours.start(Part::Worker);
    let job = JobName { message: id.clone(), dispatch: 1 }.id();
    let queue = outbox.queue();
    eventually("the job to be dropped", LONG, async || {
        let states = queue.states(std::slice::from_ref(&job)).await.ok()?;
        (states[0] == JobState::Dropped).then_some(())
    })
    .await;
    working.stop().await;
    outbox.memory.by_hand().set_status(&id, "PENDING").unwrap();
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 2).await;
    assert_eq!(sink.attempts(), 0);
    let working = ours.start(Part::Worker);
    outbox.wait(&id, "SENT").await;
    assert_eq!(sink.attempts(), 1);
    working.stop().await;
    relay.stop().await;
}

/// Of a job that somebody completes and removes while no relay runs, the event is left, and counts.
#[tokio::test]
async fn what_was_completed_while_no_relay_ran_is_heard() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.claim_time = LONG;
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    relay.stop().await;
    // Nobody dispatches it again before the event is heard.
    outbox.memory.by_hand().set_due_at(&id, Utc::now() + TimeDelta::hours(1));
    outbox.memory.by_hand().expire_claims();
    assert_eq!(outbox.store.rescue(10).await.unwrap(), 1);
    assert_eq!(outbox.find(&id).await.status, "PENDING");
    let (base, job) = (format!("bull:{}", outbox.queue().name()), id.to_string());
    server.cli(&["LREM", &format!("{base}:wait"), "0", &job]).await.unwrap();
    server.cli(&["DEL", &format!("{base}:{job}")]).await.unwrap();
    outbox.tell_completed(server, &job).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&id, "SENT").await;
    relay.stop().await;
}

/// A finished job that nobody told of is found by looking, however much there is to hear.
#[tokio::test]
async fn kept_jobs_are_looked_at_while_events_never_end() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    // It was settled, and its job stays behind: nobody looks for it but at what is kept.
    let id = outbox.enqueue(&outbox.message("order.created", 1)).await;
    outbox.memory.by_hand().set_status(&id, "SENT").unwrap();
    let (queue, job) = (outbox.queue(), id.to_string());
    queue.add(&[kept(&job, "order.created", json!({}))]).await.unwrap();
    let relay = outbox.start(Part::Relay);
    let told = Arc::new(AtomicUsize::new(0));
    let telling = tokio::spawn({
        let (told, address) = (Arc::clone(&told), outbox.address);
        let events = format!("bull:{}:events", queue.name());
        async move {
            let client = redis::Client::open(format!("redis://{address}")).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            loop {
                let mut pipeline = redis::pipe();
                for _ in 0..200 {
                    let add = pipeline.cmd("XADD").arg(&events).arg("MAXLEN").arg("~").arg(10_000);
                    add.arg("*").arg("event").arg("progress").arg("jobId").arg("x").ignore();
                }
                pipeline.query_async::<()>(&mut connection).await.unwrap();
                told.fetch_add(200, Ordering::SeqCst);
            }
        }
    });
    eventually("much to hear", LONG, async || (told.load(Ordering::SeqCst) > 2_000).then_some(()))
        .await;
    outbox.complete(server, &job, "null").await;
    eventually("the job to be removed", LONG, async || {
        let states = queue.states(std::slice::from_ref(&job)).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
    telling.abort();
    relay.stop().await;
}

/// Workers in Node share the queue of a lane with workers of ours: what they complete is SENT, and
/// is not delivered again, though nothing is left of the job.
#[tokio::test]
async fn what_node_completes_on_a_lane_of_ours_is_sent() {
    let server = Redis::private(&[]).await.unwrap();
    let sink = MemorySink::new();
    sink.hold();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let relay = outbox.start(Part::Relay);
    // All of ours are busy.
    let held = outbox.enqueue_many(4).await;
    soon(sink.wait_held(4)).await;
    let ids = outbox.enqueue_many(20).await;
    let node = worker(Bullmq::V6, &outbox, json!({"concurrency": 5})).await;
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    // Nothing of it is outstanding, or waits to be delivered again.
    let queue = outbox.queue();
    eventually("only what is held to be left", LONG, async || {
        let counts = queue.counts().await.ok()?;
        let is_left = (counts.waiting, counts.active) == (0, held.len() as u64);
        (is_left && relay.transport.health()[0].in_flight == held.len()).then_some(())
    })
    .await;
    eventually("the lines", LONG, async || (count(&node, "delivered") >= 20).then_some(())).await;
    assert_eq!(count(&node, "delivered"), 20);
    drop(node);
    sink.release();
    for id in held {
        outbox.wait(&id, "SENT").await;
    }
    assert_eq!(sink.attempts(), 4);
    assert_eq!(relay.counted("outbox_sent_total"), 24);
    assert_eq!(relay.counted("outbox_late_completions_total"), 0);
    relay.stop().await;
}

/// Lanes whose queues have one name: each message goes where its own lane says.
#[tokio::test]
async fn lanes_that_share_a_queue_deliver_their_own() {
    let server = Redis::shared().await;
    let sinks = [MemorySink::new(), MemorySink::new()];
    let mut outbox = own(server.address(), Arc::new(sinks[0].clone()));
    outbox.lane.queue = QueuePattern::parse(&name()).unwrap();
    let mut other = outbox.lane.clone();
    other.integration.push_str("-other");
    if let Workers::Own(delivery) = &mut other.workers {
        delivery.sink = Arc::new(sinks[1].clone()) as Arc<dyn Sink>;
    }
    // It has the queue first, and runs none of its jobs.
    let mut foreign = outbox.lane.clone();
    foreign.integration.push_str("-foreign");
    foreign.workers = Workers::External;
    let integrations = [outbox.lane.integration.clone(), other.integration.clone()];
    let theirs = NewMessage::new(&foreign.integration, "order.created").json(&json!({}));
    outbox.others = vec![outbox.lane.clone(), other];
    outbox.lane = foreign;
    let relay = outbox.start(Part::Relay);
    let mut ids = Vec::new();
    for n in 0..20 {
        let message = NewMessage::new(&integrations[n % 2], "order.created").json(&json!({}));
        ids.push(outbox.enqueue(&message).await);
    }
    let foreign = outbox.enqueue(&theirs).await;
    for id in ids {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    for (sink, integration) in sinks.iter().zip(&integrations) {
        let delivered = sink.delivered();
        assert_eq!(delivered.len(), 10);
        assert!(delivered.iter().all(|message| message.integration == *integration));
    }
    assert_ne!(outbox.find(&foreign).await.status, "SENT");
    relay.stop().await;
}
