//! Parcels, deliveries and changes by hand on MariaDB, beside transactions that stay open.

use crate::mariadb::{Maria, start};
use crate::taking::{all, settlement, wish};
use postroom_core::{
    Batch, Fate, Key, MessageId, NewAction, NewMessage, Operation, Quota, Settled, Store,
    StoreErrorKind, Take,
};
use postroom_store::OpenOptions;
use postroom_store::mysql::MySqlStore;
use postroom_testkit::contract::Harness as _;
use postroom_testkit::eventually;
use sqlx::AssertSqlSafe;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);
/// Less than the time after which the server gives up waiting for a row, or for a table.
const AT_ONCE: Duration = Duration::from_millis(1_500);

async fn take(store: &dyn Store, lane: &str) -> Vec<Batch> {
    store.take(&wish(store, &all(lane)).await).await.expect("take")
}

async fn send(store: &dyn Store, batches: &[Batch]) {
    let sent: Vec<_> = batches.iter().map(|batch| settlement(batch, &Fate::Sent)).collect();
    assert_eq!(store.settle(&sent).await.expect("settle"), Settled::default());
}

fn failed() -> Fate {
    Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO }
}

async fn enqueue(store: &dyn Store, lane: &str, messages: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for _ in 0..messages {
        ids.push(store.enqueue(&NewMessage::new(lane, "t")).await.expect("enqueue").into_id());
    }
    ids
}

async fn count(outbox: &Maria, sql: &str) -> i64 {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::query_scalar(sql).fetch_one(&outbox.by_hand).await.expect("a count")
}

const LEFT: &str =
    "SELECT (SELECT COUNT(*) FROM outbox_parcel) + (SELECT COUNT(*) FROM outbox_claim)
    + (SELECT COUNT(*) FROM outbox_delivery) + (SELECT COUNT(*) FROM outbox_pending_edit)";

fn ids(batches: &[Batch]) -> HashSet<MessageId> {
    batches.iter().flat_map(|batch| &batch.messages).map(|taken| taken.message.id.clone()).collect()
}

/// In the server's default isolation, where what is looked for and not there locks a gap: a producer of fresh
/// and of delayed messages, and somebody who has changed messages in a parcel, with a delivery, and closed
/// ones. Neither commits.
async fn open_transactions_keep_nobody_waiting(outbox: &Maria, store: Arc<dyn Store>) {
    let sent = enqueue(&*store, "noop", 2).await;
    send(&*store, &take(&*store, "noop").await).await;
    let retried = enqueue(&*store, "noop", 2).await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    let fresh = enqueue(&*store, "noop", 20).await;
    let insert = |event: &str, due: &str| {
        format!(
            "INSERT INTO integration_outbox (source_stream_id, source_event_id, integration_type, \
             event_type, payload, due_at) VALUES ('s', '{event}', 'noop', 't', '{{}}', {due})"
        )
    };
    let producing = format!(
        "{}; {}",
        insert("fresh", "UTC_TIMESTAMP(6)"),
        insert("delayed", "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR")
    );
    let producer = outbox.database.open_transaction(&producing).await;
    let set = |id: &MessageId, set: &str| {
        format!("UPDATE integration_outbox SET {set} WHERE id = '{id}'")
    };
    let editing = [
        set(&sent[1], "status = 'PENDING'"),
        set(&retried[1], "due_at = due_at - INTERVAL 1 SECOND"),
        set(&fresh[19], "integration_type = 'other'"),
    ];
    let editor = outbox.database.open_transaction(&editing.join("; ")).await;

    let began = Instant::now();
    let taken = take(&*store, "noop").await;
    let held = ids(&taken);
    assert!(fresh[..19].iter().chain(&retried[..1]).all(|id| held.contains(id)), "{held:?}");
    // Every fate, of what nobody is changing.
    let later = Duration::from_secs(600);
    let fates = [Fate::Sent, failed(), Fate::Released, Fate::Postponed { delay: later }];
    let mut settlements = Vec::new();
    for batch in &taken {
        let mut settlement = settlement(batch, &Fate::Sent);
        settlement.verdicts.retain(|one| one.id != fresh[19] && one.id != retried[1]);
        for (verdict, fate) in settlement.verdicts.iter_mut().zip(fates.iter().cycle()) {
            verdict.fate = fate.clone();
        }
        settlements.push(settlement);
    }
    assert_eq!(store.settle(&settlements).await.expect("settle"), Settled::default());
    outbox.expire_claims().await;
    let quotas = all("noop");
    let queued = Take { for_queue: true, ..wish(&*store, &quotas).await };
    store.take(&queued).await.expect("take");
    store.backlog().await.expect("backlog");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());

    producer.await;
    editor.await;
    outbox.expire_claims().await;
    eventually("everything to be sent", SOON, async || {
        store.rescue(100).await.expect("rescue");
        let now = "UPDATE integration_outbox SET due_at = UTC_TIMESTAMP(6) \
                   WHERE status <> 'SENT' AND due_at > UTC_TIMESTAMP(6)";
        outbox.execute(now.to_owned()).await.expect("due");
        for lane in ["noop", "other"] {
            let quotas = all(lane);
            let mut batches = take(&*store, lane).await;
            for which in [postroom_core::Rescued::Together, postroom_core::Rescued::Alone] {
                let wish = wish(&*store, &quotas).await;
                batches.extend(store.take_rescued(&wish, which).await.expect("take"));
            }
            send(&*store, &batches).await;
        }
        let open = "SELECT COUNT(*) FROM integration_outbox WHERE status <> 'SENT'";
        (count(outbox, open).await == 0 && count(outbox, LEFT).await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_producers_and_editors_keep_no_relay_waiting() {
    let outbox = start().await;
    let store = outbox.store().await;
    open_transactions_keep_nobody_waiting(&outbox, store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_producers_and_editors_keep_no_relay_waiting_that_cannot_skip_locked_rows() {
    let outbox = start().await;
    let store = MySqlStore::new(outbox.database.url(), &OpenOptions::default()).expect("a store");
    open_transactions_keep_nobody_waiting(&outbox, Arc::new(store.without_skip_locked())).await;
}

/// Whoever holds a lane keeps others from that lane alone.
#[tokio::test]
async fn a_lane_that_somebody_holds_delays_no_other() {
    let outbox = start().await;
    let store = outbox.store().await;
    for lane in ["a", "b", "c"] {
        enqueue(&*store, lane, 2).await;
        send(&*store, &take(&*store, lane).await).await;
        enqueue(&*store, lane, 2).await;
    }
    let hold = "SELECT mark FROM outbox_lane_cursor WHERE integration = 'b' FOR UPDATE";
    let commit = outbox.database.open_transaction(hold).await;
    let began = Instant::now();
    let quotas = ["a", "c"].map(|lane| Quota { integration: lane.to_owned(), rows: 10 });
    let taken = store.take(&wish(&*store, &quotas).await).await.expect("take");
    assert_eq!(ids(&taken).len(), 4);
    send(&*store, &taken).await;
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    commit.await;
    assert_eq!(ids(&take(&*store, "b").await).len(), 2);
}

/// A busy lane gives every take as much as it asked for, and what committed late lies below its mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_found_in_a_lane_that_is_never_empty() {
    let outbox = start().await;
    let store = outbox.store().await;
    let late = NewMessage::new("noop", "t").event_id("late");
    let commit = outbox.enqueue_uncommitted(&late).await.expect("open");
    let quotas = [Quota { integration: "noop".to_owned(), rows: 5 }];
    enqueue(&*store, "noop", 5).await;
    let relay = wish(&*store, &quotas).await;
    send(&*store, &store.take(&relay).await.expect("take")).await;
    commit.await;
    enqueue(&*store, "noop", 5).await;
    eventually("the late one", SOON, async || {
        enqueue(&*store, "noop", 5).await;
        let batches = store.take(&relay).await.expect("take");
        assert_eq!(ids(&batches).len(), 5, "there is always enough above the mark");
        send(&*store, &batches).await;
        let mut messages = batches.iter().flat_map(|batch| &batch.messages);
        messages.any(|taken| taken.message.event_id == "late").then_some(())
    })
    .await;
}

/// Neither deliveries nor parcels starve the other, whatever limits a take.
#[tokio::test]
async fn deliveries_and_parcels_share_a_take() {
    let outbox = start().await;
    let store = outbox.store().await;
    enqueue(&*store, "noop", 40).await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    let fresh: HashSet<MessageId> = enqueue(&*store, "noop", 40).await.into_iter().collect();
    let quotas = [Quota { integration: "noop".to_owned(), rows: 10 }];
    let wish = wish(&*store, &quotas).await;
    let limited = Take { bytes: 20, ..wish.clone() };
    for take in [&wish, &limited] {
        let batches = store.take(take).await.expect("take");
        assert_eq!(batches.len(), 2, "a claim each");
        let taken = ids(&batches);
        let new = taken.intersection(&fresh).count();
        assert!(new.abs_diff(taken.len() - new) <= 1, "half of it is fresh: {new}");
        assert!(taken.len() > 1);
    }
    // What one of them leaves is the other's.
    let wide = [Quota { integration: "noop".to_owned(), rows: 1_000 }];
    let rest = store.take(&Take { quotas: &wide, ..wish.clone() }).await.expect("take");
    assert!(ids(&rest).len() > 40);
    let fresh = enqueue(&*store, "noop", 10).await;
    assert_eq!(ids(&store.take(&wish).await.expect("take")), fresh.into_iter().collect());
}

/// The rest of its batch is still under way: nobody has the message.
#[tokio::test]
async fn opened_again_while_its_batch_is_under_way_it_is_delivered_again() {
    let outbox = start().await;
    let store = outbox.store().await;
    enqueue(&*store, "noop", 2).await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let whole = settlement(&batch, &Fate::Sent);
    let (mut first, mut second) = (whole.clone(), whole);
    first.verdicts.truncate(1);
    first.finished = false;
    second.verdicts.remove(0);
    store.settle(&[first.clone()]).await.expect("settle");
    outbox.set_status(&first.verdicts[0].id, "PENDING").await.expect("opened");
    let again = take(&*store, "noop").await.pop().expect("opened again");
    assert_eq!(again.messages.len(), 1);
    assert_eq!(again.messages[0].message.id, first.verdicts[0].id);
    store.settle(&[second, settlement(&again, &Fate::Sent)]).await.expect("settle");
    assert_eq!(count(&outbox, LEFT).await, 0);
}

/// The first relay's attempt fails after an operator took the message from it and another relay sent it.
#[tokio::test]
async fn a_late_failure_does_not_open_what_somebody_else_has_sent() {
    let outbox = start().await;
    let store = outbox.store().await;
    enqueue(&*store, "noop", 2).await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let message = &batch.messages[0].message;
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let key = Key { seq: message.seq, id: message.id.clone() };
    assert_eq!(store.release(action, &[key]).await.expect("release"), 1);
    send(&*store, &take(&*store, "noop").await).await;
    for fate in [failed(), Fate::Sent] {
        let settled = store.settle(&[settlement(&batch, &fate)]).await.expect("settle");
        assert!(settled.late.contains(&message.seq), "{settled:?}");
    }
    let record = store.find(&message.id).await.expect("find").expect("there");
    assert_eq!((record.status.as_str(), record.message.attempts), ("SENT", 0));
}

/// The attempt finishes; only if it failed does the message go on elsewhere. Meanwhile it is shown as held.
#[tokio::test]
async fn sent_elsewhere_during_an_attempt_that_fails_it_goes_on_there() {
    let outbox = start().await;
    let store = outbox.store().await;
    for round in 0..2 {
        let id = &enqueue(&*store, "noop", 1).await[0];
        if round == 1 {
            let batch = take(&*store, "noop").await.pop().expect("due");
            store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
        }
        let batch = take(&*store, "noop").await.pop().expect("due");
        // Twice: the parcel stays in the lane in which it was inserted.
        for lane in ["third", "other"] {
            outbox.set_integration(id, lane).await;
            assert!(take(&*store, lane).await.is_empty(), "{lane}");
            let record = store.find(id).await.expect("find").expect("there");
            assert_eq!(record.status, "CLAIMED", "{lane}");
        }
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
        for lane in ["noop", "third"] {
            assert!(take(&*store, lane).await.is_empty(), "{lane}");
        }
        assert_eq!(store.diagnose().await.expect("diagnose"), []);
        send(&*store, &take(&*store, "other").await).await;
        store.backlog().await.expect("backlog");
        assert_eq!(count(&outbox, LEFT).await, 0);
    }
}

/// A restore of the data alone brings parcels while the triggers make them too.
#[tokio::test]
async fn a_message_in_two_parcels_or_with_a_delivery_too_is_delivered_once() {
    let outbox = start().await;
    let store = outbox.store().await;
    let retried = &enqueue(&*store, "noop", 1).await[0];
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    let fresh = &enqueue(&*store, "noop", 1).await[0];
    let parcel = |seq: &str| {
        format!(
            "INSERT INTO outbox_parcel SELECT integration_type, {seq}, id, due_at, 1 \
             FROM integration_outbox"
        )
    };
    // Of the first beside its delivery, of both beside their parcels.
    for sql in [
        format!("{} WHERE id = '{retried}'", parcel("seq")),
        format!("{} WHERE id = '{fresh}'", parcel("seq + 100")),
    ] {
        outbox.execute(sql).await.expect("restored");
    }
    let found = store.diagnose().await.expect("diagnose");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].problem, "2 deliveries or parcels have no open message");
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.removed, mended.total()), (2, 2));
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let batches = take(&*store, "noop").await;
    assert_eq!(batches.iter().map(|batch| batch.messages.len()).sum::<usize>(), 2);
    assert_eq!(ids(&batches), HashSet::from([retried.clone(), fresh.clone()]));
    send(&*store, &batches).await;
    assert_eq!(count(&outbox, LEFT).await, 0);
}

/// Nobody reconciles: the delivery outranks the parcel when it is read.
#[tokio::test]
async fn a_delivery_outranks_a_parcel_that_names_its_message() {
    let outbox = start().await;
    let store = outbox.store().await;
    let id = &enqueue(&*store, "noop", 1).await[0];
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    let parcel = "INSERT INTO outbox_parcel SELECT integration_type, seq, id, due_at, 1 \
                  FROM integration_outbox";
    outbox.execute(parcel.to_owned()).await.expect("restored");
    let batches = take(&*store, "noop").await;
    assert_eq!(batches.len(), 1, "{batches:?}");
    assert_eq!(ids(&batches), HashSet::from([id.clone()]));
    send(&*store, &batches).await;
    assert_eq!(count(&outbox, LEFT).await, 0);
}

/// More than are followed at a time while relays work.
#[tokio::test]
async fn reconciling_follows_every_change_by_hand() {
    let outbox = start().await;
    let store = outbox.store().await;
    for sql in [
        "INSERT INTO integration_outbox (source_stream_id, source_event_id, integration_type, event_type, payload)
         SELECT 's', seq, 'noop', 't', '{}' FROM seq_1_to_6000",
        "UPDATE integration_outbox SET due_at = due_at + INTERVAL 1 HOUR",
    ] {
        outbox.execute(sql.to_owned()).await.expect("changed");
    }
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_pending_edit").await, 6_000);
    assert_eq!(store.reconcile().await.expect("reconcile").followed, 6_000);
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_pending_edit").await, 0);
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_parcel").await, 0);
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_delivery").await, 6_000);
}

/// A change of the table's columns that waits behind an open transaction: whoever reads the table waits for it.
/// Nothing is claimed that could not be read, and whoever wants to take is told of the lock each time.
#[tokio::test]
async fn what_could_not_be_read_is_not_claimed() {
    let outbox = start().await;
    let store = outbox.store().await;
    enqueue(&*store, "noop", 1).await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    enqueue(&*store, "noop", 2).await;
    let reader = outbox.database.open_transaction("SELECT 1 FROM integration_outbox").await;
    let mut altering = outbox.database.connection().await;
    let alter = tokio::spawn(async move {
        let sql = "ALTER TABLE integration_outbox ADD COLUMN note INT";
        sqlx::raw_sql(sql).execute(&mut altering).await.expect("altered");
    });
    eventually("the change to wait for its lock", SOON, async || {
        let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
            WHERE DB = DATABASE() AND STATE = 'Waiting for table metadata lock'";
        (count(&outbox, waits).await == 1).then_some(())
    })
    .await;

    let quotas = all("noop");
    for _ in 0..2 {
        let refused = store.take(&wish(&*store, &quotas).await).await.expect_err("nobody can read");
        assert_eq!(refused.kind, StoreErrorKind::Conflict, "{refused:?}");
        assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_claim").await, 0);
    }
    reader.await;
    alter.await.expect("the change is made");
    let batches = take(&*store, "noop").await;
    assert_eq!(ids(&batches).len(), 3);
    send(&*store, &batches).await;
    assert_eq!(count(&outbox, LEFT).await, 0);
}

/// The claim has committed when the messages turn out to be unreadable: the next rescue frees them, and does not
/// wait for the end of the claim.
#[tokio::test]
async fn a_claim_that_could_not_be_read_is_given_up() {
    let outbox = start().await;
    let store = outbox.store().await;
    let mut all = HashSet::from_iter(enqueue(&*store, "noop", 1).await);
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &failed())]).await.expect("settle");
    }
    all.extend(enqueue(&*store, "noop", 2).await);
    let rename = |from: &str, to: &str| {
        outbox.execute(format!("ALTER TABLE integration_outbox RENAME COLUMN {from} TO {to}"))
    };
    rename("correlation_id", "hidden").await.expect("renamed");
    let quotas = crate::taking::all("noop");
    let relay = wish(&*store, &quotas).await;
    store.take(&relay).await.expect_err("nobody can read");
    rename("hidden", "correlation_id").await.expect("renamed back");
    assert_eq!(store.rescue(10).await.expect("rescue"), 3);
    let batches = take(&*store, "noop").await;
    assert_eq!(ids(&batches), all);
    let counted = batches.iter().flat_map(|batch| &batch.messages).map(|taken| taken.rescues);
    assert_eq!(counted.max(), Some(0), "nobody was lost");
    send(&*store, &batches).await;
    assert_eq!(count(&outbox, LEFT).await, 0);
}

/// Its transaction began a while before, and its clock is ahead of the database's.
#[tokio::test]
async fn a_message_due_in_a_moment_is_fresh_and_delivered_once_it_is_due() {
    let outbox = start().await;
    let store = outbox.store().await;
    let insert = "SELECT SLEEP(0.05); \
        INSERT INTO integration_outbox \
            (source_stream_id, source_event_id, integration_type, event_type, payload, due_at) \
        VALUES ('s', 'e', 'noop', 't', '{}', UTC_TIMESTAMP(6) + INTERVAL 500000 MICROSECOND)";
    outbox.database.open_transaction(insert).await.await;
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_parcel").await, 1);
    assert_eq!(count(&outbox, "SELECT COUNT(*) FROM outbox_delivery").await, 0);
    let early = "SELECT COUNT(*) FROM integration_outbox WHERE due_at > UTC_TIMESTAMP(6)";
    let batches = eventually("the message", SOON, async || {
        let batches = take(&*store, "noop").await;
        if batches.is_empty() {
            return None;
        }
        assert_eq!(count(&outbox, early).await, 0, "taken before it was due");
        Some(batches)
    })
    .await;
    send(&*store, &batches).await;
    assert_eq!(count(&outbox, LEFT).await, 0);
}
