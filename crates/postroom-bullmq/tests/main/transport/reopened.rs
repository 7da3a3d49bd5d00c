//! A message that was SENT and is set back to PENDING by hand: what is kept or said of the jobs of its
//! first life is no word on its second.

use super::outbox::{Outbox, external, own, soon};
use crate::servers::{LONG, kept};
use chrono::{TimeDelta, Utc};
use postroom_bullmq::{JobName, JobState, Part, Queue};
use postroom_core::{MessageId, Quota, Take};
use postroom_sinks::MemorySink;
use postroom_testkit::{Redis, eventually};
use serde_json::json;
use std::slice;
use std::sync::Arc;

/// The job of the dispatch that counts.
async fn job_of(outbox: &Outbox, id: &MessageId) -> JobName {
    let open = outbox.store.dispatched(slice::from_ref(id)).await.unwrap();
    JobName { message: id.clone(), dispatch: open[0].number }
}

/// Waits until nothing is left of a job.
async fn wait_removed(queue: &Queue, job: &str) {
    eventually("the job to be removed", LONG, async || {
        let states = queue.states(&[job.to_owned()]).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
}

/// Sets a message back that nobody may dispatch yet, and loses the position in the event stream.
async fn set_back(outbox: &Outbox, server: &Redis, id: &MessageId) {
    outbox.memory.by_hand().set_due_at(id, Utc::now() + TimeDelta::hours(1));
    outbox.memory.by_hand().set_status(id, "PENDING").unwrap();
    let key = format!("bull:{}:postroom:position", outbox.queue().name());
    assert_eq!(server.cli(&["DEL", &key]).await.unwrap(), 1);
}

/// Waits until a relay has heard all that happened.
async fn wait_heard(outbox: &Outbox, server: &Redis) {
    let base = format!("bull:{}", outbox.queue().name());
    let (events, position) = (format!("{base}:events"), format!("{base}:postroom:position"));
    eventually("every event to be heard", LONG, async || {
        let last = server.cli(&["XREVRANGE", &events, "+", "-", "COUNT", "1"]).await.ok()?;
        let heard = server.cli(&["GET", &position]).await.ok()?;
        (heard.is_string() && last.to_string().contains(heard.as_str()?)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_event_of_a_first_life_is_no_word_on_the_second() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let (job, queue) = (id.to_string(), outbox.queue());
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    outbox.complete(server, &job, "null").await;
    outbox.tell_completed(server, &job).await;
    outbox.wait(&id, "SENT").await;
    wait_removed(&queue, &job).await;
    wait_heard(&outbox, server).await;
    relay.stop().await;

    set_back(&outbox, server, &id).await;
    let relay = outbox.start(Part::Relay);
    wait_heard(&outbox, server).await;
    assert_eq!(outbox.find(&id).await.status, "PENDING");
    // Its job has a word of its own.
    outbox.memory.by_hand().set_due_at(&id, Utc::now());
    let second = job_of(&outbox, &id).await;
    outbox.wait_waiting(&id, second.dispatch).await;
    wait_heard(&outbox, server).await;
    assert_ne!(outbox.find(&id).await.status, "SENT");
    outbox.complete(server, &second.id(), "null").await;
    outbox.tell_completed(server, &second.id()).await;
    outbox.wait(&id, "SENT").await;
    relay.stop().await;
}

/// A relay settles, and dies before it removes the job.
#[tokio::test]
async fn a_finished_job_that_was_left_behind_is_no_word_on_the_second() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let (job, queue) = (id.to_string(), outbox.queue());
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    outbox.complete(server, &job, "null").await;
    outbox.tell_completed(server, &job).await;
    outbox.wait(&id, "SENT").await;
    wait_removed(&queue, &job).await;
    relay.stop().await;
    queue.add(&[kept(&job, "order.created", json!({}))]).await.unwrap();
    outbox.complete(server, &job, "null").await;

    outbox.memory.by_hand().set_status(&id, "PENDING").unwrap();
    let second = job_of(&outbox, &id).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, second.dispatch).await;
    wait_removed(&queue, &job).await;
    assert_ne!(outbox.find(&id).await.status, "SENT");
    outbox.complete(server, &second.id(), "null").await;
    outbox.tell_completed(server, &second.id()).await;
    outbox.wait(&id, "SENT").await;
    relay.stop().await;
}

/// Where our workers run the jobs, nothing is left of one that has completed but its event.
#[tokio::test]
async fn nor_is_one_on_a_lane_of_ours() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&id, "SENT").await;
    wait_completed(&outbox, server).await;
    wait_heard(&outbox, server).await;
    relay.stop().await;

    set_back(&outbox, server, &id).await;
    let relay = outbox.start(Part::Relay);
    wait_heard(&outbox, server).await;
    assert_eq!(outbox.find(&id).await.status, "PENDING");
    outbox.memory.by_hand().set_due_at(&id, Utc::now());
    soon(sink.wait_for(2)).await;
    outbox.wait(&id, "SENT").await;
    assert_eq!(sink.attempts(), 2);
    relay.stop().await;
}

/// Another relay has claimed the message, and not added its job yet.
#[tokio::test]
async fn nor_is_one_while_another_relay_has_the_message() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let outbox = own(server.address(), Arc::new(sink.clone()));
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&id, "SENT").await;
    wait_completed(&outbox, server).await;
    wait_heard(&outbox, server).await;
    relay.stop().await;

    set_back(&outbox, server, &id).await;
    outbox.memory.by_hand().set_due_at(&id, Utc::now());
    let quotas = [Quota { integration: outbox.lane.integration.clone(), rows: 1 }];
    let take = Take {
        worker: "another",
        relay: postroom_testkit::living_relay(&*outbox.store, 4 * LONG).await,
        quotas: &quotas,
        rows: 1,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: true,
    };
    assert!(!outbox.store.take(&take).await.unwrap().is_empty());
    let relay = outbox.start(Part::Relay);
    wait_heard(&outbox, server).await;
    assert_eq!(outbox.find(&id).await.status, "CLAIMED");
    relay.stop().await;
}

/// Waits until the queue says that a job has completed.
async fn wait_completed(outbox: &Outbox, server: &Redis) {
    let events = format!("bull:{}:events", outbox.queue().name());
    eventually("the job's end", LONG, async || {
        let told = server.cli(&["XRANGE", &events, "-", "+"]).await.ok()?;
        told.to_string().contains("completed").then_some(())
    })
    .await;
}

/// A relay that remembers the first life's end hears of the second's.
#[tokio::test]
async fn the_end_of_a_second_life_is_heard_though_the_first_ended_here_too() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    // The event is heard long before the job is missed.
    outbox.settings.claim_time = 4 * LONG;
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    let relay = outbox.start(Part::Relay);
    outbox.wait(&id, "SENT").await;
    wait_completed(&outbox, server).await;
    wait_heard(&outbox, server).await;
    // Nobody of ours runs the job of the second.
    server
        .cli(&["HSET", &format!("bull:{}:meta", outbox.queue().name()), "paused", "1"])
        .await
        .unwrap();
    outbox.memory.by_hand().set_status(&id, "PENDING").unwrap();
    let second = job_of(&outbox, &id).await;
    outbox.wait_waiting(&id, second.dispatch).await;
    outbox.wait(&id, "CLAIMED").await;
    let (base, job) = (format!("bull:{}", outbox.queue().name()), second.id());
    // Somebody else does, as BullMQ leaves a job that is removed when it has completed.
    server.cli(&["LREM", &format!("{base}:paused"), "0", &job]).await.unwrap();
    let ended = format!(
        "redis.call('DEL', KEYS[1]) return redis.call('XADD', KEYS[2], '*', 'event', 'completed', \
         'jobId', '{job}', 'returnvalue', 'null')"
    );
    let keys = [format!("{base}:{job}"), format!("{base}:events")];
    server.cli(&["EVAL", &ended, "2", &keys[0], &keys[1]]).await.unwrap();
    outbox.wait(&id, "SENT").await;
    assert_eq!(sink.attempts(), 1);
    relay.stop().await;
}
