//! What stands in the way of some does not hold up the others.

use super::faulty::{Call, faulty, refused};
use super::outbox::{Outbox, SMALL_VALUES, external, own, soon};
use crate::servers::{LONG, redis};
use postroom_bullmq::{JobState, Part, Queue, QueuePattern};
use postroom_core::{NewMessage, Quota, Take};
use postroom_relay::{ExternalLanes as _, LaneState};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::{Passage, Postgres, Proxy, Redis, eventually};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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
    client.query_one(lock, &[&locked.as_uuid()]).await.unwrap();

    let relay = outbox.start(Part::Relay);
    soon(sink.wait_for(1)).await;
    for id in outbox.enqueue_many(20).await {
        assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    }
    assert_ne!(outbox.find(&locked).await.status, "SENT");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(outbox.wait(&locked, "SENT").await.message.attempts, 0);
    assert_eq!(sink.attempts(), 21);
    relay.stop().await;
}

/// A finished job is all that is left of its word until the database has taken it.
#[tokio::test]
async fn a_job_whose_outcome_is_refused_is_kept() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
    // Each word is said twice: together with others, and alone.
    let (is_refused, words) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (refuses, said) = (Arc::clone(&is_refused), Arc::clone(&words));
    let refused_id = id.clone();
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        if call.settles(&refused_id) && refuses.load(Ordering::SeqCst) {
            said.fetch_add(1, Ordering::SeqCst);
            return Err(refused());
        }
        Ok(())
    });
    let relay = outbox.start(Part::Relay);
    outbox.wait_waiting(&id, 1).await;
    let (queue, job) = (outbox.queue(), id.to_string());
    outbox.complete(server, &job, "null").await;
    eventually("it to be looked at more than once", LONG, async || {
        (words.load(Ordering::SeqCst) >= 6).then_some(())
    })
    .await;
    let states = queue.states(std::slice::from_ref(&job)).await.unwrap();
    assert_eq!(states, [JobState::Completed]);
    is_refused.store(false, Ordering::SeqCst);
    assert_eq!(outbox.wait(&id, "SENT").await.message.attempts, 0);
    eventually("the job to be removed", LONG, async || {
        let states = queue.states(std::slice::from_ref(&job)).await.ok()?;
        (states[0] == JobState::Gone).then_some(())
    })
    .await;
    relay.stop().await;
}

/// Its job waits until somebody can read it, and no attempt is used.
#[tokio::test]
async fn a_message_that_cannot_be_read_holds_up_no_other() {
    let server = Redis::shared().await;
    let sink = MemorySink::new();
    let mut outbox = own(server.address(), Arc::new(sink.clone()));
    let unread = outbox.enqueue(&outbox.message("order.created", 1)).await;
    let is_refused = Arc::new(AtomicBool::new(true));
    let refuses = Arc::clone(&is_refused);
    let refused_id = unread.clone();
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| match call {
        Call::Dispatched(ids) if ids.contains(&refused_id) && refuses.load(Ordering::SeqCst) => {
            Err(refused())
        }
        _ => Ok(()),
    });
    let relay = outbox.start(Part::Relay);
    for id in outbox.enqueue_many(20).await {
        outbox.wait(&id, "SENT").await;
    }
    let queue = outbox.queue();
    eventually("the job to be put off", LONG, async || {
        (queue.counts().await.ok()?.delayed == 1).then_some(())
    })
    .await;
    assert_eq!(sink.attempts(), 20);
    is_refused.store(false, Ordering::SeqCst);
    assert_eq!(outbox.wait(&unread, "SENT").await.message.attempts, 0);
    assert_eq!(sink.attempts(), 21);
    relay.stop().await;
}

/// There is neither a job nor a record of its failure: the message comes again when its claim ends.
#[tokio::test]
async fn a_refused_job_whose_failure_is_refused_too_is_tried_again() {
    let server = Redis::private(SMALL_VALUES).await.unwrap();
    let mut outbox = external(server.address());
    let id = outbox.enqueue_too_large(1);
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = Arc::clone(&tries);
    let refused_id = id.clone();
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        // Twice: together with others, and alone.
        let is_refused = call.settles(&refused_id) && tried.fetch_add(1, Ordering::SeqCst) < 2;
        if is_refused { Err(refused()) } else { Ok(()) }
    });
    let relay = outbox.start(Part::Relay);
    let record = outbox.wait(&id, "DEAD").await;
    assert_eq!(record.message.attempts, 1);
    assert!(tries.load(Ordering::SeqCst) >= 3);
    relay.stop().await;
}

/// Messages that a relay has lost are taken in claims of their own. When Redis goes away they are given
/// back, and none waits for the end of a claim.
#[tokio::test]
async fn rescued_messages_are_given_back_when_redis_goes_away() {
    let server = Redis::private(&[]).await.unwrap();
    let proxy = Proxy::start(server.address());
    let mut outbox = external(proxy.address());
    // Nothing here comes back by itself.
    outbox.settings.claim_time = 20 * LONG;
    let mut other = outbox.lane.clone();
    other.integration.push_str("-other");
    let mut ids = outbox.enqueue_many(1).await;
    let theirs = NewMessage::new(&other.integration, "order.created").json(&json!({}));
    ids.push(outbox.enqueue(&theirs).await);
    outbox.others.push(other);
    lose(&outbox, ids.len()).await;
    let proxy = Arc::new(proxy);
    let (cut, was_cut) = (Arc::clone(&proxy), Arc::new(AtomicUsize::new(0)));
    let taken = Arc::clone(&was_cut);
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        if matches!(call, Call::TakeRescued) && taken.fetch_add(1, Ordering::SeqCst) == 0 {
            cut.set(Passage::Down);
        }
        Ok(())
    });
    let relay = outbox.start(Part::Relay);
    eventually("Redis to be missed", LONG, async || {
        relay.transport.health().iter().all(|lane| lane.state == LaneState::Paused).then_some(())
    })
    .await;
    for id in &ids {
        let record = outbox.wait(id, "PENDING").await;
        assert_eq!((record.message.attempts, record.locked_at), (0, None));
    }
    assert_eq!(was_cut.load(Ordering::SeqCst), 1);
    proxy.set(Passage::Open);
    for id in ids {
        outbox.wait(&id, "CLAIMED").await;
    }
    for lane in [&outbox.lane].into_iter().chain(&outbox.others) {
        let name = lane.queue.name(&lane.integration, None);
        let queue = Queue::open(&redis(server.address()), &name).unwrap();
        eventually(&name, LONG, async || (queue.counts().await.ok()?.waiting == 1).then_some(()))
            .await;
    }
    relay.stop().await;
}

/// All that is due is taken as by a relay that delivers itself, and that then dies.
async fn lose(outbox: &Outbox, messages: usize) {
    let lanes = [&outbox.lane].into_iter().chain(&outbox.others);
    let quotas: Vec<Quota> =
        lanes.map(|lane| Quota { integration: lane.integration.clone(), rows: messages }).collect();
    let take = Take {
        worker: "dead",
        relay: postroom_testkit::living_relay(&*outbox.store, Duration::from_secs(1)).await,
        quotas: &quotas,
        rows: messages,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    };
    assert_eq!(outbox.store.take(&take).await.unwrap()[0].messages.len(), messages);
    outbox.memory.by_hand().expire_claims();
    assert_eq!(outbox.store.rescue(messages).await.unwrap(), messages as u64);
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
    outbox.wait_waiting(&held, 1).await;
    assert_eq!(outbox.find(&held).await.message.attempts, 0);
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
