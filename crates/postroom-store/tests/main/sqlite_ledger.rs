//! The ledger on SQLite: parcels of one, the marks of lanes, and what people and restores do to them.

use crate::sqlite::{Sqlite, start};
use crate::taking::{all, settlement, wish};
use postroom_core::{
    Batch, Fate, Key, MessageId, NewAction, Operation, Quota, Reconciled, Rescued, Settlement,
    Store, Take,
};
use postroom_testkit::contract::{Harness as _, PlainRow};
use postroom_testkit::eventually;
use sqlx::AssertSqlSafe;
use std::slice;
use std::time::Duration;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(20);

async fn execute(outbox: &Sqlite, sql: &str) {
    sqlx::query(AssertSqlSafe(sql)).execute(&outbox.by_hand).await.expect(sql);
}

async fn number(outbox: &Sqlite, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&outbox.by_hand).await.expect(sql)
}

async fn parcels(outbox: &Sqlite) -> i64 {
    number(outbox, "SELECT count(*) FROM outbox_parcel").await
}

async fn deliveries(outbox: &Sqlite) -> i64 {
    number(outbox, "SELECT count(*) FROM outbox_delivery").await
}

async fn claims(outbox: &Sqlite) -> i64 {
    number(outbox, "SELECT count(*) FROM outbox_claim").await
}

/// Messages for `noop`; their ids in order.
async fn insert(outbox: &Sqlite, messages: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..messages {
        let row = PlainRow::new("noop").with("source_event_id", &format!("{n}-{}", Uuid::new_v4()));
        ids.push(outbox.insert(&row).await.expect("a row"));
    }
    ids
}

async fn take(store: &dyn Store, lane: &str) -> Vec<Batch> {
    store.take(&wish(store, &all(lane)).await).await.expect("take")
}

/// At most so many of `noop`.
async fn take_rows(store: &dyn Store, rows: usize) -> Vec<Batch> {
    let quotas = [Quota { integration: "noop".to_owned(), rows }];
    store.take(&wish(store, &quotas).await).await.expect("take")
}

fn ids(batches: &[Batch]) -> Vec<MessageId> {
    batches.iter().flat_map(|batch| &batch.messages).map(|taken| taken.message.id.clone()).collect()
}

fn failed() -> Fate {
    Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO }
}

async fn send(store: &dyn Store, batches: &[Batch]) {
    let sent: Vec<Settlement> =
        batches.iter().map(|batch| settlement(batch, &Fate::Sent)).collect();
    assert_eq!(store.settle(&sent).await.expect("settle").late, [0; 0]);
}

async fn status(store: &dyn Store, id: &MessageId) -> String {
    store.find(id).await.expect("find").expect("the message").status
}

/// Nothing is left to do, and nobody holds anything.
async fn assert_over(outbox: &Sqlite, store: &dyn Store) {
    let left = (parcels(outbox).await, deliveries(outbox).await, claims(outbox).await);
    assert_eq!(left, (0, 0, 0), "parcels, deliveries, claims");
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

#[tokio::test]
async fn a_fresh_message_is_written_once_to_the_ledger_and_deleted_once() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 3).await;
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (3, 0));
    let batches = take(&*store, "noop").await;
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (3, 0), "no row is claimed");
    assert_eq!((batches.len(), claims(&outbox).await), (1, 1));
    send(&*store, &batches).await;
    assert_over(&outbox, &*store).await;
}

/// The clocks of applications may be ahead: what is due within a second is fresh, and waits all the same.
#[tokio::test]
async fn what_is_due_within_a_second_is_fresh_and_not_taken_before_its_time() {
    let outbox = start().await;
    let store = outbox.store().await;
    let due = "INSERT INTO integration_outbox
                   (source_stream_id, source_event_id, integration_type, event_type, payload, due_at)
               VALUES ('s', ?1, 'noop', 't', '{}', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?1))";
    for after in ["+0.8 seconds", "+60 seconds"] {
        sqlx::query(due).bind(after).execute(&outbox.by_hand).await.expect("a row");
    }
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (1, 1));
    assert!(take(&*store, "noop").await.is_empty(), "not due yet");
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (0, 2), "set aside");
    let taken = eventually("it to be due", PATIENCE, async || {
        let taken = take(&*store, "noop").await;
        (!taken.is_empty()).then_some(taken)
    })
    .await;
    assert_eq!(ids(&taken).len(), 1);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

/// A number that was set by hand lies below the mark: a take with room left finds it at once, and a lane that
/// is never empty is swept once a second.
#[tokio::test]
async fn a_number_below_the_mark_is_found() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 40).await;
    let in_flight = take_rows(&*store, 10).await;
    let low = outbox.insert(&PlainRow::new("noop").with("seq", "-5")).await.expect("a low number");
    let found = eventually("the low number", PATIENCE, async || {
        insert(&outbox, 2).await;
        let full = take_rows(&*store, 2).await;
        assert_eq!(ids(&full).len(), 2, "the lane is never empty");
        ids(&full).contains(&low).then_some(())
    });
    found.await;
    let lower = PlainRow::new("noop").with("seq", "-6").with("source_event_id", "lower");
    let lower = outbox.insert(&lower).await.expect("a low number");
    let rest = take(&*store, "noop").await;
    assert!(ids(&rest).contains(&lower), "there was room left");
    assert!(ids(&in_flight).iter().all(|id| !ids(&rest).contains(id)), "nothing is taken twice");
    assert!(take(&*store, "noop").await.is_empty());
}

/// Somebody has emptied `outbox_lane_cursor`: what is in flight is not taken again.
#[tokio::test]
async fn a_cursor_that_is_gone_is_made_again_above_what_is_in_flight() {
    let outbox = start().await;
    let store = outbox.store().await;
    let messages = insert(&outbox, 9).await;
    let first = take_rows(&*store, 3).await;
    let second = take_rows(&*store, 3).await;
    // A hole below what is in flight.
    let back: Vec<_> = first.iter().map(|batch| settlement(batch, &Fate::Sent)).collect();
    store.settle(&back).await.expect("settle");
    outbox.insert(&PlainRow::new("noop").with("seq", "-1")).await.expect("a low number");
    execute(&outbox, "DELETE FROM outbox_lane_cursor").await;
    let third = take_rows(&*store, 1).await;
    let rest = take(&*store, "noop").await;
    assert_eq!(ids(&third).len() + ids(&rest).len(), 4);
    for id in ids(&second) {
        assert!(!ids(&third).contains(&id) && !ids(&rest).contains(&id), "taken twice");
        assert!(messages.contains(&id));
    }
}

/// A restore of some tables leaves parcels below the mark that no claim names.
#[tokio::test]
async fn parcels_of_a_claim_that_was_deleted_are_taken_again() {
    let outbox = start().await;
    let store = outbox.store().await;
    let messages = insert(&outbox, 3).await;
    take(&*store, "noop").await;
    execute(&outbox, "DELETE FROM outbox_claim").await;
    assert_eq!(store.backlog().await.expect("backlog").lanes[0].pending, 3);
    let again = take(&*store, "noop").await;
    assert_eq!(ids(&again), messages);
    send(&*store, &again).await;
    assert_over(&outbox, &*store).await;
}

/// After somebody has emptied the table, a number comes again beside a parcel that still has it.
#[tokio::test]
async fn two_parcels_of_one_number_are_told_apart() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 2).await;
    let old = take_rows(&*store, 1).await;
    outbox.truncate().await;
    let new = insert(&outbox, 2).await;
    assert_eq!(number(&outbox, "SELECT count(*) FROM outbox_parcel WHERE seq = 1").await, 2);
    let batches = take(&*store, "noop").await;
    assert_eq!(ids(&batches), new);
    let late = store.settle(&[settlement(&old[0], &Fate::Sent)]).await.expect("settle").late;
    assert_eq!(late, [1]);
    send(&*store, &batches).await;
    assert_over(&outbox, &*store).await;
}

/// With room for one, they take turns; with more, each has half of it.
#[tokio::test]
async fn deliveries_and_parcels_do_not_starve_each_other() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 20).await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &Fate::Released)]).await.expect("settle");
    }
    insert(&outbox, 20).await;
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (20, 20));
    for _ in 0..4 {
        assert_eq!(ids(&take_rows(&*store, 1).await).len(), 1);
    }
    let held = "SELECT count(*) FROM outbox_in_flight";
    assert_eq!(number(&outbox, held).await, 2, "half of them from parcels");
    assert_eq!(ids(&take_rows(&*store, 10).await).len(), 10);
    assert_eq!(number(&outbox, held).await, 7);
    // What one of them leaves is the other's.
    let rest = take(&*store, "noop").await;
    assert_eq!((rest.len(), ids(&rest).len()), (2, 26));
    // Bytes are shared too.
    insert(&outbox, 4).await;
    let mut weight = 0;
    for batch in take(&*store, "noop").await {
        weight = batch.messages[0].message.weight();
        store.settle(&[settlement(&batch, &Fate::Released)]).await.expect("settle");
    }
    insert(&outbox, 4).await;
    let quotas = all("noop");
    let few = Take { bytes: 2 * weight, ..wish(&*store, &quotas).await };
    let batches = store.take(&few).await.expect("take");
    assert_eq!((batches.len(), ids(&batches).len()), (2, 2), "{batches:?}");
}

/// Lanes are asked for in one call; each kind has one claim over all of them.
#[tokio::test]
async fn one_claim_holds_parcels_of_several_lanes() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 2).await;
    outbox.insert(&PlainRow::new("other")).await.expect("a row");
    let quotas =
        ["noop", "other", "noop"].map(|lane| Quota { integration: lane.to_owned(), rows: 10 });
    let batches = store.take(&wish(&*store, &quotas).await).await.expect("take");
    assert_eq!((batches.len(), ids(&batches).len()), (1, 3));
    let lanes = store.backlog().await.expect("backlog").lanes;
    assert_eq!(lanes.iter().map(|lane| lane.claimed).collect::<Vec<_>>(), [2, 1]);
    send(&*store, &batches).await;
    assert_over(&outbox, &*store).await;
}

/// The rest of its batch is still under way: nobody has the message.
#[tokio::test]
async fn opened_again_while_its_batch_is_under_way_it_is_delivered_again() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 2).await;
    let batch = take(&*store, "noop").await.remove(0);
    let whole = settlement(&batch, &Fate::Sent);
    let (mut first, mut second) = (whole.clone(), whole);
    first.verdicts.truncate(1);
    first.finished = false;
    second.verdicts.remove(0);
    store.settle(&[first.clone()]).await.expect("settle");
    execute(&outbox, "UPDATE integration_outbox SET status = 'PENDING' WHERE status = 'SENT'")
        .await;
    let again = take(&*store, "noop").await;
    assert_eq!(ids(&again), [first.verdicts[0].id.clone()]);
    store.settle(&[second]).await.expect("settle");
    send(&*store, &again).await;
    assert_over(&outbox, &*store).await;
}

/// The first relay's attempt fails after an operator took the message from it and another relay sent it.
#[tokio::test]
async fn a_late_failure_does_not_open_what_somebody_else_has_sent() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 2).await;
    let batch = take(&*store, "noop").await.remove(0);
    let message = &batch.messages[0].message;
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let key = Key { seq: message.seq, id: message.id.clone() };
    assert_eq!(store.release(action, &[key]).await.expect("release"), 1);
    let other = take(&*store, "noop").await;
    assert_eq!(ids(&other), slice::from_ref(&message.id));
    send(&*store, &other).await;
    for fate in [failed(), Fate::Sent] {
        let settled = store.settle(&[settlement(&batch, &fate)]).await.expect("settle");
        assert!(settled.late.contains(&message.seq), "{settled:?}");
    }
    let record = store.find(&message.id).await.expect("find").expect("there");
    assert_eq!((record.status.as_str(), record.message.attempts), ("SENT", 0));
}

/// However often it is changed meanwhile: the attempt decides, and only if it fails the message goes
/// elsewhere.
#[tokio::test]
async fn sent_elsewhere_during_an_attempt_that_fails_it_goes_on_there() {
    let outbox = start().await;
    let store = outbox.store().await;
    for (fate, is_sent) in [(failed(), false), (Fate::Sent, true)] {
        let id = &insert(&outbox, 1).await[0];
        let batch = take(&*store, "noop").await.remove(0);
        for (column, value) in
            [("integration_type", "third"), ("status", "FAILED"), ("integration_type", "other")]
        {
            execute(
                &outbox,
                &format!("UPDATE integration_outbox SET {column} = '{value}' WHERE id = '{id}'"),
            )
            .await;
            assert_eq!(status(&*store, id).await, "CLAIMED", "{column}");
            assert_eq!(deliveries(&outbox).await, 0, "{column}");
        }
        assert_eq!(store.reconcile().await.expect("reconcile"), Reconciled::default());
        assert_eq!(store.diagnose().await.expect("diagnose"), []);
        let settled = store.settle(&[settlement(&batch, &fate)]).await.expect("settle");
        assert_eq!(settled.late, [0; 0]);
        for lane in ["noop", "third"] {
            assert!(take(&*store, lane).await.is_empty(), "{lane}");
        }
        let again = take(&*store, "other").await;
        assert_eq!(again.is_empty(), is_sent);
        send(&*store, &again).await;
        assert_over(&outbox, &*store).await;
    }
}

/// A change that no trigger saw is found out by the take: nothing is delivered that the message does not say.
#[tokio::test]
async fn a_take_sets_aside_what_a_parcel_names_by_mistake() {
    let outbox = start().await;
    let store = outbox.store().await;
    let messages = insert(&outbox, 6).await;
    let tomorrow = "2100-01-01T00:00:00Z";
    for (id, column, value) in [
        (messages[0].clone(), "status", "SENT"),
        (messages[1].clone(), "status", "DEAD"),
        (messages[2].clone(), "due_at", tomorrow),
        (messages[3].clone(), "integration_type", "other"),
    ] {
        outbox.set_unseen(&id, column, value).await;
    }
    outbox.delete(&messages[4]).await;
    let taken = take(&*store, "noop").await;
    assert_eq!(ids(&taken), [messages[5].clone()]);
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (1, 3));
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let elsewhere = take(&*store, "other").await;
    assert_eq!(ids(&elsewhere), [messages[3].clone()]);
    assert_eq!(status(&*store, &messages[1]).await, "DEAD");
}

/// More than is put right under one write lock.
#[tokio::test]
async fn a_lane_of_deleted_messages_is_passed_in_one_take() {
    let outbox = start().await;
    let store = outbox.store().await;
    execute(
        &outbox,
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
         INSERT INTO integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload)
         SELECT 's', 'e' || i, 'noop', 't', '{}' FROM n",
    )
    .await;
    execute(&outbox, "DELETE FROM integration_outbox").await;
    let last = insert(&outbox, 1).await;
    assert_eq!(ids(&take(&*store, "noop").await), last);
    assert_eq!(parcels(&outbox).await, 1);
}

/// Parcels without a message, twice for one message, beside a delivery, or saying something else: each open
/// message is delivered once after it.
#[tokio::test]
async fn reconciling_leaves_one_place_for_every_open_message() {
    let outbox = start().await;
    let store = outbox.store().await;
    let messages = insert(&outbox, 6).await;
    let held = take_rows(&*store, 1).await;
    assert_eq!(ids(&held), messages[..1]);
    for doubled in [0, 1] {
        execute(
            &outbox,
            &format!(
                "INSERT INTO outbox_parcel SELECT 'elsewhere', seq, message_id, due_at
                 FROM outbox_parcel WHERE message_id = '{}'",
                messages[doubled]
            ),
        )
        .await;
    }
    execute(
        &outbox,
        &format!(
            "INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
             SELECT message_id, seq, due_at, due_at, 'w', integration FROM outbox_parcel
             WHERE message_id = '{}'",
            messages[2]
        ),
    )
    .await;
    outbox.delete(&messages[3]).await;
    outbox.set_unseen(&messages[4], "integration_type", "other").await;
    execute(&outbox, &format!("DELETE FROM outbox_parcel WHERE message_id = '{}'", messages[5]))
        .await;
    let findings = store.diagnose().await.expect("diagnose");
    assert!(!findings.is_empty());
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!(mended, Reconciled { made: 1, removed: 4, followed: 1, ..Reconciled::default() });
    assert_eq!(store.reconcile().await.expect("reconcile"), Reconciled::default());
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let mut rest = take(&*store, "noop").await;
    rest.extend(take(&*store, "other").await);
    rest.extend(take(&*store, "elsewhere").await);
    let mut delivered = ids(&rest);
    delivered.sort_unstable();
    let mut expected =
        vec![messages[1].clone(), messages[2].clone(), messages[4].clone(), messages[5].clone()];
    expected.sort_unstable();
    assert_eq!(delivered, expected);
    send(&*store, &held).await;
    send(&*store, &rest).await;
    assert_over(&outbox, &*store).await;
}

/// A delivery that somebody's restore left beside a parcel that is held: the attempt is not the one that
/// counts.
#[tokio::test]
async fn a_delivery_outranks_a_parcel_that_is_held() {
    let outbox = start().await;
    let store = outbox.store().await;
    let id = &insert(&outbox, 1).await[0];
    let held = take(&*store, "noop").await;
    execute(
        &outbox,
        "INSERT INTO outbox_delivery (message_id, seq, due_at, since, state, integration)
         SELECT message_id, seq, due_at, due_at, 'w', integration FROM outbox_parcel",
    )
    .await;
    assert_eq!(status(&*store, id).await, "PENDING");
    let again = take(&*store, "noop").await;
    assert_eq!(ids(&again), slice::from_ref(id));
    let late = store.settle(&[settlement(&held[0], &Fate::Sent)]).await.expect("settle").late;
    assert_eq!(late.len(), 1);
    assert_eq!(status(&*store, id).await, "CLAIMED");
    send(&*store, &again).await;
    assert_over(&outbox, &*store).await;
}

/// Given up or taken for a queue, losing a claim counts as no rescue; else as one, and the parcel is gone.
#[tokio::test]
async fn an_expired_claim_on_parcels_becomes_deliveries() {
    let outbox = start().await;
    let store = outbox.store().await;
    let messages = insert(&outbox, 3).await;
    let batch = take(&*store, "noop").await.remove(0);
    let mut part = settlement(&batch, &Fate::Sent);
    part.verdicts.truncate(1);
    store.settle(&[part]).await.expect("settle");
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 2);
    assert_eq!(
        (parcels(&outbox).await, deliveries(&outbox).await, claims(&outbox).await),
        (0, 2, 0)
    );
    let quotas = all("noop");
    let wish = wish(&*store, &quotas).await;
    let rescued = store.take_rescued(&wish, Rescued::Together).await.expect("take");
    assert_eq!(ids(&rescued), messages[1..]);
    assert!(rescued[0].messages.iter().all(|taken| taken.rescues == 1 && taken.dispatch == 1));
}

/// A producer's own conflict rule is that of the triggers too.
#[tokio::test]
async fn a_row_that_is_replaced_whole_is_delivered_once() {
    let outbox = start().await;
    let store = outbox.store().await;
    let id = &insert(&outbox, 1).await[0];
    let columns: String = sqlx::query_scalar(
        "SELECT group_concat(name, ', ') FROM pragma_table_info('integration_outbox')",
    )
    .fetch_one(&outbox.by_hand)
    .await
    .expect("columns");
    let save = format!(
        "INSERT OR REPLACE INTO integration_outbox ({columns})
         SELECT {columns} FROM integration_outbox WHERE id = '{id}'"
    );
    // In a parcel, in flight, with a delivery.
    execute(&outbox, &save).await;
    assert_eq!(parcels(&outbox).await, 1);
    let batch = take(&*store, "noop").await;
    execute(&outbox, &save).await;
    assert!(take(&*store, "noop").await.is_empty(), "it is in flight");
    store.settle(&[settlement(&batch[0], &failed())]).await.expect("settle");
    execute(&outbox, &save).await;
    assert_eq!((parcels(&outbox).await, deliveries(&outbox).await), (0, 1));
    let again = take(&*store, "noop").await;
    assert_eq!(ids(&again), slice::from_ref(id));
    send(&*store, &again).await;
    assert_over(&outbox, &*store).await;
}

/// Whoever held the file kept the heartbeats of other relays waiting too: they come first.
#[tokio::test]
async fn a_rescue_that_waited_for_the_file_is_left_to_the_next_one() {
    let outbox = start().await;
    let store = outbox.store().await;
    insert(&outbox, 2).await;
    assert_eq!(ids(&take(&*store, "noop").await).len(), 2);
    outbox.expire_claims().await;
    execute(&outbox, "BEGIN IMMEDIATE").await;
    let (rescued, ()) = tokio::join!(store.rescue(10), async {
        tokio::time::sleep(Duration::from_millis(800)).await;
        execute(&outbox, "COMMIT").await;
    });
    assert_eq!(rescued.expect("rescue"), 0);
    assert_eq!(store.rescue(10).await.expect("rescue"), 2);
}
