//! Takes that wait for their lane while somebody changes what lies in it, on PostgreSQL.

use crate::ledger_outbox::{LEFT, count, enqueue, outbox, take};
use crate::taking::{settlement, wish};
use postroom_core::{Fate, Quota};
use postroom_testkit::eventually;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

const SOON: Duration = Duration::from_secs(30);

/// How many sessions of this database wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// What whoever unpacks a parcel does, under the lock of its lane.
const UNPACK: &str = "
    INSERT INTO core_outbox.delivery (message_id, seq, due_at, since, lane, bytes, state, integration)
    SELECT id, seq, due_at, due_at, core_outbox.lane_of(integration_type), 2, 'w', integration_type
    FROM core_outbox.integration_outbox WHERE status = 'PENDING';
    DELETE FROM core_outbox.parcel";

async fn lock_lane(client: &Client) {
    client
        .batch_execute("BEGIN; SELECT FROM core_outbox.lane_cursor FOR UPDATE")
        .await
        .expect("locked");
}

/// The statement that waited reads an old snapshot, in which the parcels still are. A first take locks
/// before it looks, and so does a sweep; the takes after it are one statement.
#[tokio::test]
async fn a_take_that_waited_for_its_lane_delivers_what_was_unpacked_meanwhile_once() {
    let (database, client, store) = outbox().await;
    let looking_on = database.client().await;
    enqueue(&client, 1, "PENDING").await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    }
    let fresh = postroom_store::open(database.url(), &Default::default()).await.expect("store");
    for store in [fresh, store] {
        enqueue(&client, 3, "PENDING").await;
        lock_lane(&client).await;
        let taking = Arc::clone(&store);
        let waiting = tokio::spawn(async move { take(&*taking, "noop").await });
        eventually("a take that waits", SOON, async || {
            (count(&looking_on, WAITING).await > 0).then_some(())
        })
        .await;
        client.batch_execute(&format!("{UNPACK}; COMMIT")).await.expect("unpacked");
        let mut seen = HashSet::new();
        let mut batches = waiting.await.expect("the take");
        batches.extend(take(&*store, "noop").await);
        for batch in &batches {
            for taken in &batch.messages {
                assert!(seen.insert(taken.message.id), "taken twice");
            }
            store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settle");
        }
        assert_eq!(seen.len(), 3);
        assert_eq!(count(&client, LEFT).await, 0);
    }
}

/// Two takes that waited for the same lane share what is in it: the second goes on where the first ended.
#[tokio::test]
async fn takes_that_waited_for_one_lane_never_overlap() {
    let (database, client, store) = outbox().await;
    let looking_on = database.client().await;
    let other = postroom_store::open(database.url(), &Default::default()).await.expect("store");
    // The cursor must be there to be locked, and both know that.
    for store in [&store, &other] {
        assert!(take(&**store, "noop").await.is_empty());
    }
    for _ in 0..3 {
        for _ in 0..2 {
            enqueue(&client, 3, "PENDING").await;
        }
        lock_lane(&client).await;
        let tasks: Vec<_> = [&store, &other]
            .map(Arc::clone)
            .into_iter()
            .map(|store| {
                tokio::spawn(async move {
                    let quotas = [Quota { integration: "noop".to_owned(), rows: 3 }];
                    store.take(&wish(&*store, &quotas).await).await.expect("take")
                })
            })
            .collect();
        eventually("takes that wait", SOON, async || {
            (count(&looking_on, WAITING).await == 2).then_some(())
        })
        .await;
        client.batch_execute("COMMIT").await.expect("free");
        let mut seen = HashSet::new();
        for task in tasks {
            let batches = task.await.expect("the take");
            assert_eq!(batches.len(), 1);
            for batch in batches {
                for taken in &batch.messages {
                    assert!(seen.insert(taken.message.id), "taken twice");
                }
                let settled = store.settle(&[settlement(&batch, &Fate::Sent)]).await;
                assert!(settled.expect("settle").late.is_empty());
            }
        }
        assert_eq!(seen.len(), 6);
        assert_eq!(count(&client, LEFT).await, 0);
    }
}

/// A parcel that is larger than the room there is: its messages keep their numbers as deliveries, so that
/// they are listed and delivered in the order of their insertion.
#[tokio::test]
async fn messages_keep_their_numbers_when_a_parcel_is_unpacked() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 5, "PENDING").await;
    let quotas = [Quota { integration: "noop".to_owned(), rows: 1 }];
    let first = store.take(&wish(&*store, &quotas).await).await.expect("take");
    assert_eq!(first.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
    let unlike = "SELECT count(*) FROM core_outbox.delivery d
        JOIN core_outbox.integration_outbox m ON m.id = d.message_id WHERE m.seq <> d.seq";
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.delivery").await, 5);
    assert_eq!(count(&client, unlike).await, 0);
    let rest = take(&*store, "noop").await.pop().expect("the others");
    let numbers: Vec<i64> = rest.messages.iter().map(|taken| taken.message.seq).collect();
    assert_eq!(numbers.len(), 4);
    assert!(numbers.is_sorted() && first[0].messages[0].message.seq < numbers[0]);
}
