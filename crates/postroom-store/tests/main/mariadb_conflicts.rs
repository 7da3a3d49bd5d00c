//! Transactions that meet on MariaDB.

use crate::mariadb::{Maria, start};
use postroom_core::{
    Enqueued, Fate, Fence, NewMessage, Quota, RelayId, Rescued, Settlement, Store, StoreErrorKind,
    Take, Verdict,
};
use postroom_store::OpenOptions;
use postroom_store::mysql::MySqlStore;
use postroom_testkit::contract::Harness as _;
use postroom_testkit::{eventually, living_relay};
use sqlx::Connection as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
const CLAIM_TIME: Duration = Duration::from_secs(600);

fn noop(rows: usize) -> [Quota; 1] {
    [Quota { integration: "noop".to_owned(), rows }]
}

async fn take_of<'a>(store: &dyn Store, quotas: &'a [Quota; 1]) -> Take<'a> {
    take_by(living_relay(store, CLAIM_TIME).await, quotas)
}

fn take_by(relay: RelayId, quotas: &[Quota; 1]) -> Take<'_> {
    Take {
        worker: "worker",
        relay,
        quotas,
        rows: quotas[0].rows,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}

async fn take(store: &dyn Store, rows: usize) -> Option<postroom_core::Batch> {
    match store.take(&take_of(store, &noop(rows)).await).await {
        Ok(mut batches) => batches.pop(),
        Err(error) if error.kind == StoreErrorKind::Conflict => None,
        Err(error) => panic!("{error}"),
    }
}

fn all_sent(batch: &postroom_core::Batch) -> Settlement {
    let verdicts = batch.messages.iter().map(|taken| Verdict {
        seq: taken.message.seq,
        id: taken.message.id.clone(),
        fate: Fate::Sent,
    });
    Settlement { fence: Fence::Claim(batch.token), verdicts: verdicts.collect(), finished: true }
}

/// A store on a server that waits for locked rows, since it cannot pass over them.
fn waiting_store(outbox: &Maria) -> Arc<dyn Store> {
    let store = MySqlStore::new(outbox.database.url(), &OpenOptions::default()).expect("a store");
    Arc::new(store.without_skip_locked())
}

/// Someone holds a message and wants the claim on it, a relay the reverse: one of them gives way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_a_conflict_and_the_same_settlement_works_afterwards() {
    let outbox: Maria = start().await;
    let store = waiting_store(&outbox);
    let id = store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueue").into_id();
    let settlement = all_sent(&take(&*store, 1).await.expect("due"));

    // The server gives up the transaction that has written less: that must be the relay's.
    let mut by_hand = outbox.database.connection().await;
    let prepare = "CREATE TABLE ballast (n INT)";
    sqlx::raw_sql(prepare).execute(&mut by_hand).await.expect("a table");
    let begin = "BEGIN; INSERT INTO ballast SELECT seq FROM seq_1_to_200; \
                 SELECT seq FROM integration_outbox FOR UPDATE";
    sqlx::raw_sql(begin).execute(&mut by_hand).await.expect("the message is held");
    let settling = tokio::spawn({
        let (store, settlement) = (Arc::clone(&store), settlement.clone());
        async move { store.settle(&[settlement]).await }
    });
    eventually("the settlement to wait", SOON, async || {
        (outbox.database.lock_waits().await.len() == 1).then_some(())
    })
    .await;
    let circle = "SELECT token FROM outbox_claim FOR UPDATE; COMMIT";
    sqlx::raw_sql(circle).execute(&mut by_hand).await.expect("the relay gives way");

    let conflict = settling.await.expect("ended").expect_err("a deadlock");
    assert_eq!(conflict.kind, StoreErrorKind::Conflict, "{conflict}");
    assert!(store.settle(&[settlement]).await.expect("settle").late.is_empty());
    let record = store.find(&id).await.expect("find").expect("the message");
    assert_eq!((record.status.as_str(), record.message.attempts), ("SENT", 0));
}

/// In the server's default isolation a claim would lock the gaps that producers insert into.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_under_way_keeps_no_producer_waiting() {
    let outbox = start().await;
    let store = outbox.store().await;
    for _ in 0..3 {
        store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueue");
    }
    // Before the lock: a heartbeat looks at claims.
    let relay = living_relay(&*store, CLAIM_TIME).await;
    // Claims are looked into once the lane is locked: here it stops.
    let mut by_hand = outbox.database.connection().await;
    let stop = "LOCK TABLES outbox_claim WRITE";
    sqlx::raw_sql(stop).execute(&mut by_hand).await.expect("locked");
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.take(&take_by(relay, &noop(20))).await.expect("take").pop() }
    });
    let mut producer = outbox.database.connection().await;
    eventually("the claim to wait", SOON, async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
             WHERE DB = DATABASE() AND STATE LIKE 'Waiting for table%'",
        )
        .fetch_one(&mut producer)
        .await
        .expect("processes");
        (waiting == 1).then_some(())
    })
    .await;
    let impatient = "SET innodb_lock_wait_timeout = 1";
    sqlx::raw_sql(impatient).execute(&mut producer).await.expect("set");
    for _ in 0..3 {
        let message = NewMessage::new("noop", "t");
        postroom::enqueue(&mut producer, message).await.expect("nothing to wait for");
    }
    sqlx::raw_sql("UNLOCK TABLES").execute(&mut by_hand).await.expect("unlocked");
    assert_eq!(taking.await.expect("taken").expect("due").messages.len(), 3);
    assert_eq!(take(&*store, 20).await.expect("due").messages.len(), 3);
}

/// A producer that repeats itself may keep its transaction open for as long as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_with_a_duplicate_keeps_no_relay_waiting() {
    let outbox = start().await;
    let store = outbox.store().await;
    let message = NewMessage::new("noop", "t").event_id("evt-1");
    let id = store.enqueue(&message).await.expect("enqueue").into_id();
    let settlement = all_sent(&take(&*store, 1).await.expect("due"));

    let mut producer = outbox.database.connection().await;
    let mut tx = producer.begin().await.expect("begin");
    let again = postroom::enqueue(&mut tx, message).await.expect("enqueue");
    assert_eq!(again, Enqueued::Duplicate(id.clone()));
    // Whoever has to wait for the producer gives up after a while.
    assert!(store.settle(&[settlement]).await.expect("not kept waiting").late.is_empty());
    tx.commit().await.expect("commit");
    assert_eq!(store.find(&id).await.expect("find").expect("the message").status, "SENT");
}

/// In READ COMMITTED a message that is being closed is locked, and its claimed delivery is not.
const CLOSE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; \
                     UPDATE integration_outbox SET status = 'SENT'";

async fn take_rescued(store: &dyn Store) -> usize {
    store
        .take_rescued(&take_of(store, &noop(10)).await, Rescued::Together)
        .await
        .expect("take")
        .len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescue_leaves_what_is_being_changed_for_the_next_time() {
    let outbox = start().await;
    let store = outbox.store().await;
    store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueue");
    take(&*store, 1).await.expect("due");
    outbox.expire_claims().await;

    let mut by_hand = outbox.database.connection().await;
    sqlx::raw_sql(CLOSE).execute(&mut by_hand).await.expect("changed");
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(outbox.claims().await, 1);
    sqlx::raw_sql("COMMIT").execute(&mut by_hand).await.expect("commit");

    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!((take_rescued(&*store).await, outbox.claims().await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_given_back_follows_a_change_that_is_being_made() {
    let outbox = start().await;
    let store = waiting_store(&outbox);
    store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueue");
    let mut settlement = all_sent(&take(&*store, 1).await.expect("due"));
    settlement.verdicts[0].fate = Fate::Released;

    let mut by_hand = outbox.database.connection().await;
    sqlx::raw_sql(CLOSE).execute(&mut by_hand).await.expect("changed");
    let settling = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.settle(&[settlement]).await }
    });
    eventually("the settlement to wait", SOON, async || {
        (outbox.database.lock_waits().await.len() == 1).then_some(())
    })
    .await;
    sqlx::raw_sql("COMMIT").execute(&mut by_hand).await.expect("commit");
    settling.await.expect("ended").expect("settled");
    assert!(take(&*store, 1).await.is_none());
}

/// Producers get no error, and everything they commit is sent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_and_relays_at_once_lose_nothing() {
    const MESSAGES: usize = 150;
    let outbox = start().await;
    let done = Arc::new(AtomicBool::new(false));
    let mut relays = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (store, done) = (outbox.store().await, Arc::clone(&done));
        relays.spawn(async move {
            let mut sent = 0;
            loop {
                let was_done = done.load(Ordering::Acquire);
                match take(&*store, 20).await {
                    Some(batch) => {
                        let settlement = [all_sent(&batch)];
                        while let Err(error) = store.settle(&settlement).await {
                            assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
                        }
                        sent += batch.messages.len();
                    }
                    None if was_done => return sent,
                    None => tokio::task::yield_now().await,
                }
            }
        });
    }
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let mut producer = outbox.database.connection().await;
        producers.spawn(async move {
            for _ in 0..MESSAGES {
                let message = NewMessage::new("noop", "t");
                postroom::enqueue(&mut producer, message).await.expect("never a deadlock");
            }
        });
    }
    producers.join_all().await;
    done.store(true, Ordering::Release);
    let sent: usize = relays.join_all().await.into_iter().sum();
    let rest = take(&*outbox.store().await, 1_000).await.map_or(0, |batch| batch.messages.len());
    assert_eq!(sent + rest, 3 * MESSAGES);
}
