//! Takes that follow a signal, on PostgreSQL: they take what they were woken for, and the relay looks for the
//! rest right after.

use crate::ledger_outbox::{LEFT, count, enqueue, outbox, take};
use crate::taking::{all, settlement, wish};
use postroom_core::{Batch, ContentFault, Fate, Quota, Store, StoreErrorKind, Take, Wake};
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::Client;

const SOON: Duration = Duration::from_secs(30);

/// Listens, and looks once at an empty outbox: from then on nothing unusual is expected.
async fn listening(store: &dyn Store) -> Box<dyn Wake> {
    let mut wake = store.wake().await.expect("PostgreSQL signals");
    woken(&mut *wake).await;
    assert!(take(store, "noop").await.is_empty());
    wake
}

async fn woken(wake: &mut dyn Wake) {
    timeout(SOON, wake.woken()).await.expect("a signal");
}

fn messages(batches: &[Batch]) -> usize {
    batches.iter().map(|batch| batch.messages.len()).sum()
}

async fn settle(store: &dyn Store, batches: &[Batch]) {
    for batch in batches {
        let settled = store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settle");
        assert!(settled.late.is_empty());
    }
}

async fn enqueue_content(client: &Client, payload: &str) {
    let sql = "INSERT INTO core_outbox.integration_outbox
                   (source_stream_id, source_event_id, integration_type, event_type, payload)
               VALUES ('s', gen_random_uuid()::text, 'noop', 't', $1::text::jsonb)";
    client.execute(sql, &[&payload]).await.expect("enqueued");
}

/// A delivery that is due, a parcel that committed late and a message that was changed by hand beside a fresh
/// one: nothing signals these again.
#[tokio::test]
async fn whatever_else_there_is_is_looked_for_right_after() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue(&client, 1, "FAILED").await;
    enqueue(&client, 2, "PENDING").await;
    client
        .batch_execute("UPDATE core_outbox.lane_cursor SET mark = (SELECT max(number) FROM core_outbox.parcel)")
        .await
        .expect("as if the parcel had committed late");
    let edit = "UPDATE core_outbox.integration_outbox SET due_at = due_at - interval '1 minute' WHERE id =
        (SELECT id FROM core_outbox.integration_outbox WHERE status = 'PENDING' ORDER BY seq LIMIT 1)";
    assert_eq!(client.execute(edit, &[]).await.expect("edited"), 1);
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.pending_edit").await, 1);
    enqueue(&client, 2, "PENDING").await;

    woken(&mut *wake).await;
    let first = take(&*store, "noop").await;
    assert_eq!(messages(&first), 2, "what it was woken for");
    settle(&*store, &first).await;
    // No signal is left: it is the store that asks for another look.
    let mut left = 3;
    while left > 0 {
        woken(&mut *wake).await;
        let more = take(&*store, "noop").await;
        left -= messages(&more);
        settle(&*store, &more).await;
    }
    // The note on a message that was in flight is left to the next look.
    assert!(take(&*store, "noop").await.is_empty());
    assert_eq!(count(&client, LEFT).await, 0);
}

#[tokio::test]
async fn after_that_look_the_relay_sleeps() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue(&client, 1, "PENDING").await;
    woken(&mut *wake).await;
    settle(&*store, &take(&*store, "noop").await).await;
    woken(&mut *wake).await;
    assert!(take(&*store, "noop").await.is_empty());
    let again = timeout(Duration::from_millis(300), wake.woken()).await;
    assert!(again.is_err(), "nothing was committed, and nothing is owed");
}

/// More parcels than are few, or more bytes: they are taken as ever, in the same take.
#[tokio::test]
async fn what_is_not_little_is_taken_at_once_all_the_same() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    for (parcels, payload) in [(30, "{}".to_owned()), (2, format!("\"{}\"", "x".repeat(20_000)))] {
        for _ in 0..parcels {
            enqueue_content(&client, &payload).await;
        }
        woken(&mut *wake).await;
        let taken = take(&*store, "noop").await;
        assert_eq!(messages(&taken), parcels);
        let contents = taken.iter().flat_map(|batch| &batch.messages);
        for one in contents {
            assert!(one.fault.is_none());
            assert_eq!(one.message.payload.as_str(), payload);
        }
        settle(&*store, &taken).await;
    }
    assert_eq!(count(&client, LEFT).await, 0);
}

/// Compressed content comes as it is. What was rewritten since and is long, is read with care.
#[tokio::test]
async fn content_is_whole_however_it_is_stored() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    let compressed = format!("[\"{}\"]", "x".repeat(8_000));
    enqueue_content(&client, &compressed).await;
    let stored = "SELECT pg_column_size(payload)::bigint FROM core_outbox.integration_outbox";
    assert!(count(&client, stored).await < 2_000, "it is compressed");
    woken(&mut *wake).await;
    let taken = take(&*store, "noop").await;
    assert_eq!(taken[0].messages[0].message.payload.as_str(), compressed);
    settle(&*store, &taken).await;

    // The look that was owed to it.
    woken(&mut *wake).await;
    assert!(take(&*store, "noop").await.is_empty());

    // In a way that leaves no note: the parcel still says that it is small.
    let long = format!("[\"{}\"]", "y".repeat(50_000));
    enqueue_content(&client, "{}").await;
    let rewritten = format!(
        "BEGIN; SET LOCAL core_outbox.relay = 'on';
         UPDATE core_outbox.integration_outbox SET payload = '{long}' WHERE status = 'PENDING'; COMMIT"
    );
    client.batch_execute(&rewritten).await.expect("rewritten");
    woken(&mut *wake).await;
    let taken = take(&*store, "noop").await;
    assert_eq!(messages(&taken), 1);
    let one = &taken[0].messages[0];
    assert_eq!((one.message.payload.as_str(), &one.fault), (long.as_str(), &None));
    settle(&*store, &taken).await;
    assert_eq!(count(&client, LEFT).await, 0);
}

/// Numbers that are small in the database and large as text are not sent, and not read into memory.
#[tokio::test]
async fn content_that_grows_beyond_the_limit_is_left_out() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue_content(&client, &format!("[{}]", vec!["1e131071"; 500].join(","))).await;
    let size = "SELECT bytes::bigint FROM core_outbox.parcel";
    assert!(count(&client, size).await < 16_384, "it is taken in a hurry");
    woken(&mut *wake).await;
    let taken = take(&*store, "noop").await;
    let one = &taken[0].messages[0];
    assert!(matches!(one.fault, Some(ContentFault::TooLarge { .. })), "{:?}", one.fault);
}

/// The room of each lane and the bytes of a take hold after a signal too.
#[tokio::test]
async fn a_take_in_a_hurry_keeps_to_its_limits() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue(&client, 3, "PENDING").await;
    woken(&mut *wake).await;
    let quotas = [("noop", 2), ("other", 1_000)]
        .map(|(lane, rows)| Quota { integration: lane.to_owned(), rows });
    let taken = store.take(&wish(&*store, &quotas).await).await.expect("take");
    assert_eq!(messages(&taken), 2, "the lane's room");
    settle(&*store, &taken).await;
    settle(&*store, &take(&*store, "noop").await).await;
    // Retries are expected no more.
    assert!(take(&*store, "noop").await.is_empty());

    for _ in 0..4 {
        enqueue_content(&client, &format!("\"{}\"", "x".repeat(600))).await;
    }
    woken(&mut *wake).await;
    let quotas = all("noop");
    let small = Take { bytes: 1_000, ..wish(&*store, &quotas).await };
    assert_eq!(messages(&store.take(&small).await.expect("take")), 2, "the bytes");
}

#[tokio::test]
async fn a_relay_whose_time_is_over_takes_nothing_in_a_hurry() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue(&client, 1, "PENDING").await;
    woken(&mut *wake).await;
    let quotas = all("noop");
    let wish = wish(&*store, &quotas).await;
    client
        .batch_execute("UPDATE core_outbox.relay SET until = now() - interval '1 second'")
        .await
        .expect("over");
    let refused = store.take(&wish).await.expect_err("its claims would be anybody's");
    assert_eq!(refused.kind, StoreErrorKind::Conflict);
    assert_eq!(messages(&take(&*store, "noop").await), 1);
}

/// A relay and a queue's dispatcher wait on one store, and both hear that a look is owed.
#[tokio::test]
async fn everybody_who_waits_on_a_store_looks_again() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    let mut other = store.wake().await.expect("PostgreSQL signals");
    woken(&mut *other).await;
    assert!(take(&*store, "noop").await.is_empty());
    enqueue(&client, 1, "PENDING").await;
    woken(&mut *wake).await;
    woken(&mut *other).await;
    settle(&*store, &take(&*store, "noop").await).await;
    woken(&mut *other).await;
    assert!(take(&*store, "noop").await.is_empty());
    woken(&mut *wake).await;
}

/// What is deleted or closed by hand before the take sees it ends its claim, and is not delivered.
#[tokio::test]
async fn a_message_that_is_gone_leaves_nothing_behind() {
    let (_database, client, store) = outbox().await;
    let mut wake = listening(&*store).await;
    enqueue(&client, 3, "PENDING").await;
    // The parcel still names it.
    client
        .batch_execute(
            "BEGIN; SET LOCAL core_outbox.relay = 'on';
             UPDATE core_outbox.integration_outbox SET status = 'CANCELLED'
             WHERE id = (SELECT refs[1] FROM core_outbox.parcel);
             DELETE FROM core_outbox.integration_outbox
             WHERE id = (SELECT refs[2] FROM core_outbox.parcel); COMMIT",
        )
        .await
        .expect("closed");
    woken(&mut *wake).await;
    let taken = take(&*store, "noop").await;
    assert_eq!(messages(&taken), 1);
    settle(&*store, &taken).await;
    assert_eq!(count(&client, LEFT).await, 0);
}
