//! Messages that are taken and become no job, and what holds up whom meanwhile.

use super::faulty::{Call, faulty, refused};
use super::outbox::{Outbox, Running, SMALL_VALUES, external, wait_counted};
use crate::servers::{LONG, redis};
use postroom_bullmq::{Part, Queue, QueuePattern};
use postroom_core::{MessageId, NewMessage};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, Redis, eventually};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn by_tenant(outbox: &mut Outbox, room: usize) {
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    outbox.lane.outstanding_max = room;
}

/// One more lane of the same process.
fn another(outbox: &mut Outbox) -> (NewMessage, Queue) {
    let mut lane = outbox.lane.clone();
    lane.integration.push_str("-other");
    lane.queue = QueuePattern::default();
    let name = lane.queue.name(&lane.integration, None);
    let message = NewMessage::new(&lane.integration, "order.created").json(&json!({}));
    outbox.others.push(lane);
    (message, Queue::open(&redis(outbox.address), &name).unwrap())
}

/// Lets the database refuse so many words on a message; how many it was asked to take.
fn refuse(outbox: &mut Outbox, id: &MessageId, times: usize) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let id = id.clone();
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        let is_refused = call.settles(&id) && count.fetch_add(1, Ordering::SeqCst) < times;
        if is_refused { Err(refused()) } else { Ok(()) }
    });
    asked
}

fn postponed(relay: &Running) -> u64 {
    let text = relay.metrics.text();
    let lines = text.lines().filter(|line| line.contains("outcome=\"POSTPONED\""));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn wait_waiting(queue: &Queue, jobs: u64) {
    eventually(&format!("{jobs} jobs in {}", queue.name()), LONG, async || {
        (queue.counts().await.ok()?.waiting == jobs).then_some(())
    })
    .await;
}

/// The others of its batch keep the claim for as long as their jobs wait.
#[tokio::test]
async fn what_could_not_be_put_off_does_not_wait_for_the_end_of_its_claim() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.claim_time = 20 * LONG;
    by_tenant(&mut outbox, 5);
    for _ in 0..5 {
        outbox.enqueue(&outbox.message("order.created", 3).tenant("acme")).await;
    }
    let stuck = outbox.enqueue(&outbox.message("order.created", 3).tenant("acme")).await;
    let mate = outbox.enqueue(&outbox.message("order.created", 3).tenant("globex")).await;
    let asked = refuse(&mut outbox, &stuck, 4);
    let relay = outbox.start(Part::Relay);
    wait_counted(&asked, 5).await;
    let record = outbox.wait(&stuck, "PENDING").await;
    assert_eq!((record.message.attempts, record.locked_at), (0, None));
    assert_eq!(outbox.find(&mate).await.status, "CLAIMED");
    relay.stop().await;
}

#[tokio::test]
async fn a_refused_job_whose_failure_is_refused_too_does_not_wait_for_the_end_of_its_claim() {
    let server = Redis::private(SMALL_VALUES).await.unwrap();
    let mut outbox = external(server.address());
    outbox.settings.claim_time = 20 * LONG;
    let large = outbox.enqueue_too_large(1);
    let mate = &outbox.enqueue_many(1).await[0];
    let asked = refuse(&mut outbox, &large, 2);
    let relay = outbox.start(Part::Relay);
    wait_counted(&asked, 3).await;
    let record = outbox.wait(&large, "PENDING").await;
    assert_eq!((record.message.attempts, record.locked_at), (0, None));
    assert_eq!(outbox.wait(mate, "CLAIMED").await.message.attempts, 0);
    relay.stop().await;
}

/// A message that is locked is tried again and again.
#[tokio::test]
async fn locked_messages_of_a_full_queue_hold_up_no_other_lane() {
    let server = Redis::shared().await;
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.unwrap();
    let mut outbox = external(server.address());
    outbox.settings.claim_time = 20 * LONG;
    let (message, theirs) = another(&mut outbox);
    by_tenant(&mut outbox, 20);
    outbox.store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    for _ in 0..40 {
        outbox.enqueue(&outbox.message("order.created", 3).tenant("acme")).await;
    }
    let client = database.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM core_outbox.integration_outbox FOR UPDATE";
    client.batch_execute(lock).await.unwrap();

    let relay = outbox.start(Part::Relay);
    eventually("some to be put off", LONG, async || (postponed(&relay) == 20).then_some(())).await;
    outbox.enqueue(&message).await;
    wait_waiting(&theirs, 1).await;
    // Nor do they hold up the end, however long they stay locked.
    relay.stop().await;
    client.batch_execute("COMMIT").await.unwrap();
}

/// A batch has room for so many bytes, and one lane can use all of them.
#[tokio::test]
async fn a_lane_of_large_messages_leaves_the_others_their_turn() {
    let server = Redis::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    outbox.settings.claim_time = LONG;
    let (small, theirs) = another(&mut outbox);
    let large = outbox.message("order.created", 1).json(&json!("x".repeat(150_000)));
    for _ in 0..200 {
        outbox.enqueue(&large).await;
    }
    outbox.enqueue(&small).await;
    let takes = AtomicUsize::new(0);
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| match call {
        // They have a batch each by then, and there is more than that of the large ones.
        Call::Take if takes.fetch_add(1, Ordering::SeqCst) >= 4 => Err(refused()),
        _ => Ok(()),
    });
    let relay = outbox.start(Part::Relay);
    wait_waiting(&theirs, 1).await;
    assert!(outbox.queue().counts().await.unwrap().waiting < 200);
    relay.stop().await;
}

#[tokio::test]
async fn a_queue_that_two_lanes_share_has_its_cap_once() {
    const CAP: u64 = 8;
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.claim_time = LONG;
    outbox.lane.outstanding_max = usize::try_from(CAP).unwrap();
    let (theirs, _) = another(&mut outbox);
    let base = crate::servers::name();
    let pattern = QueuePattern::parse(&format!("{base}-{{tenant}}")).unwrap();
    outbox.others[0].queue = pattern.clone();
    outbox.lane.queue = pattern;
    for n in 0..CAP {
        outbox.enqueue(&outbox.message("order.created", 1).tenant("acme")).await;
        let message = theirs.clone().event_id(format!("e-{n}")).tenant("acme");
        outbox.enqueue(&message).await;
    }
    let relay = outbox.start(Part::Relay);
    let queue = Queue::open(&redis(server.address()), &format!("{base}-acme")).unwrap();
    let waiting = eventually("all to be seen to", LONG, async || {
        let waiting = queue.counts().await.ok()?.waiting;
        (waiting > CAP || waiting == CAP && postponed(&relay) >= CAP).then_some(waiting)
    })
    .await;
    assert_eq!(waiting, CAP);
    relay.stop().await;
}
