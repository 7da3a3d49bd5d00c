//! Transactions that meet on MariaDB.

use crate::mariadb::{Maria, start};
use postroom_core::{Fate, NewMessage, Quota, Settlement, Store, StoreErrorKind, Take, Verdict};
use postroom_testkit::contract::Harness as _;
use postroom_testkit::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

async fn take(store: &dyn Store, rows: usize) -> Option<postroom_core::Batch> {
    let quotas = [Quota { integration: "noop".to_owned(), rows }];
    let take = Take {
        worker: "worker",
        quotas: &quotas,
        rows,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        claim_time: Duration::from_secs(600),
    };
    match store.take(&take).await {
        Ok(batch) => batch,
        Err(error) if error.kind == StoreErrorKind::Conflict => None,
        Err(error) => panic!("{error}"),
    }
}

fn all_sent(batch: &postroom_core::Batch) -> Settlement {
    let verdicts = batch.messages.iter().map(|taken| Verdict {
        seq: taken.message.seq,
        id: taken.message.id,
        fate: Fate::Sent,
    });
    Settlement { token: batch.token, verdicts: verdicts.collect(), finished: true }
}

/// Someone holds a message and wants its delivery, a relay the reverse: one of them gives way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_a_conflict_and_the_same_settlement_works_afterwards() {
    let outbox: Maria = start().await;
    let store = outbox.store().await;
    let id = store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueue").id();
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
    let circle = "SELECT seq FROM outbox_delivery FOR UPDATE; COMMIT";
    sqlx::raw_sql(circle).execute(&mut by_hand).await.expect("the relay gives way");

    let conflict = settling.await.expect("ended").expect_err("a deadlock");
    assert_eq!(conflict.kind, StoreErrorKind::Conflict, "{conflict}");
    assert!(store.settle(&[settlement]).await.expect("settle").late.is_empty());
    let record = store.find(id).await.expect("find").expect("the message");
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
    // A claim is put on record last: here it stops, with its deliveries locked.
    let mut by_hand = outbox.database.connection().await;
    let stop = "LOCK TABLES outbox_claim WRITE";
    sqlx::raw_sql(stop).execute(&mut by_hand).await.expect("locked");
    let taking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { take(&*store, 20).await }
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
