//! How far a lane's low-water mark rises, on PostgreSQL.

use crate::ledger_outbox::{count, enqueue, outbox, take};
use crate::taking::{settlement, wish};
use postroom_core::{Fate, Quota, Store, Take};
use postroom_testkit::eventually;
use std::time::Duration;
use tokio_postgres::Client;

/// Transactions of other tests on the same server hold the mark too, as long as they are open.
const SOON: Duration = Duration::from_secs(60);

/// Takes and settles until the lane's low-water mark satisfies `reached`; how many messages that brought.
async fn work_until(client: &Client, store: &dyn Store, reached: &str) -> usize {
    let mut taken = 0;
    let sql = format!("SELECT count(*) FROM core_outbox.lane_cursor WHERE {reached}");
    eventually(&format!("a lane with {reached}"), SOON, async || {
        for batch in take(store, "noop").await {
            taken += batch.messages.len();
            store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
        }
        (count(client, &sql).await == 1).then_some(())
    })
    .await;
    taken
}

/// Waits until somebody has tried to raise the mark once more, which writes the row again.
async fn raised_again(client: &Client, store: &dyn Store) {
    let sql = "SELECT xmin::text::bigint FROM core_outbox.lane_cursor";
    let before = count(client, sql).await;
    eventually("another try to raise the mark", SOON, async || {
        assert!(take(store, "noop").await.is_empty());
        (count(client, sql).await != before).then_some(())
    })
    .await;
}

/// A transaction that is open holds the mark below its parcel, however long it takes and whatever commits
/// meanwhile. Once it has ended, the mark rises to where the lane was taken.
#[tokio::test]
async fn the_low_water_mark_waits_for_open_producers_and_rises_after_them() {
    let (database, client, store) = outbox().await;
    enqueue(&client, 1, "PENDING").await;
    assert_eq!(work_until(&client, &*store, "low_water = mark").await, 1);

    let late = database.client().await;
    late.batch_execute("BEGIN").await.expect("begun");
    enqueue(&late, 1, "PENDING").await;
    enqueue(&client, 1, "PENDING").await;
    let younger = work_until(&client, &*store, "next_low_water = mark AND low_water < mark").await;
    assert_eq!(younger, 1);
    for _ in 0..2 {
        raised_again(&client, &*store).await;
    }
    assert_eq!(
        count(&client, "SELECT count(*) FROM core_outbox.lane_cursor WHERE low_water < mark").await,
        1,
        "it has not passed what is not committed"
    );
    late.batch_execute("COMMIT").await.expect("committed");
    assert_eq!(work_until(&client, &*store, "low_water = mark").await, 1, "the late one");
}

/// What commits after younger ones were taken does not wait for the end of a backlog that fills every take.
#[tokio::test]
async fn a_late_commit_does_not_wait_for_the_end_of_a_backlog() {
    let (database, client, store) = outbox().await;
    let late = database.client().await;
    late.batch_execute("BEGIN").await.expect("begun");
    enqueue(&late, 1, "PENDING").await;
    let backlog = 200_000;
    enqueue(&client, backlog, "PENDING").await;
    let quotas = [Quota { integration: "noop".to_owned(), rows: 64 }];
    let both = [Quota { integration: "idle".to_owned(), rows: 64 }, quotas[0].clone()];
    let (wish_of_it, wish_of_both) = (wish(&*store, &quotas).await, wish(&*store, &both).await);
    let alone = "SELECT count(*) FROM core_outbox.parcel WHERE cardinality(refs) = 1";
    let mut left = backlog;
    let mut is_committed = false;
    while !is_committed || count(&client, alone).await > 0 {
        // A lane that is idle beside it says nothing of this one.
        let idle = Take { quotas: &both[..1], ..wish_of_both.clone() };
        assert!(store.take(&idle).await.expect("take").is_empty());
        let wish = if left % 2 == 0 { &wish_of_it } else { &wish_of_both };
        for batch in store.take(wish).await.expect("take") {
            left -= i32::try_from(batch.messages.len()).expect("a few");
            store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
        }
        if !is_committed {
            late.batch_execute("COMMIT").await.expect("committed");
            is_committed = true;
        }
    }
    assert!(left > 1_000, "it waited until {left} of the backlog were left");
}
