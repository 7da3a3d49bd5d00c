//! Changes by hand and operations on messages in parcels that a relay holds, on PostgreSQL.

use crate::ledger_outbox::{LEFT, count, enqueue, outbox, take};
use crate::taking::{settlement, wish};
use postroom_core::{Fate, Key, NewAction, Operation, Quota, Settled};
use std::time::Duration;
use uuid::Uuid;

/// The rest of its batch is still under way: nobody has the message, and its parcel is held.
#[tokio::test]
async fn opened_again_while_its_batch_is_under_way_it_is_delivered_again() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 2, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let whole = settlement(&batch, &Fate::Sent);
    let (mut first, mut second) = (whole.clone(), whole);
    first.verdicts.truncate(1);
    first.finished = false;
    second.verdicts.remove(0);
    store.settle(&[first.clone()]).await.expect("settle");
    let open = "UPDATE core_outbox.integration_outbox SET status = 'PENDING' WHERE status = 'SENT'";
    assert_eq!(client.execute(open, &[]).await.expect("opened"), 1);
    let again = take(&*store, "noop").await.pop().expect("opened again");
    assert_eq!(again.messages.len(), 1);
    assert_eq!(again.messages[0].message.id, first.verdicts[0].id);
    store.settle(&[second, settlement(&again, &Fate::Sent)]).await.expect("settle");
    assert_eq!(count(&client, LEFT).await, 0);
}

/// Whoever saves a message as it is writes a new version of its row, at another place: its outcome is
/// recorded all the same.
#[tokio::test]
async fn rewritten_during_an_attempt_it_is_settled() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 3, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let save = "UPDATE core_outbox.integration_outbox SET tenant_id = 'acme'";
    assert_eq!(client.execute(save, &[]).await.expect("saved"), 3);
    let settled = store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    assert_eq!(settled, Settled::default());
    assert_eq!(count(&client, LEFT).await, 0);
    let sent = "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
    assert_eq!(count(&client, sent).await, 3);
}

/// Somebody saves the messages at the moment in which their outcome is recorded: the settlement waits a little,
/// and finds newer versions of their rows then. None of them may be passed over in silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saved_at_the_moment_of_their_settlement_they_are_settled() {
    let (database, client, store) = outbox().await;
    let editor = database.client().await;
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let open =
        "SELECT count(*) FROM core_outbox.integration_outbox WHERE status IN ('PENDING', 'FAILED')";
    // It does not wait for long, so not every round meets the moment.
    for _ in 0..200 {
        enqueue(&client, 3, "PENDING").await;
        let batch = take(&*store, "noop").await.pop().expect("due");
        let save = "BEGIN; UPDATE core_outbox.integration_outbox SET tenant_id = 'acme' WHERE status = 'PENDING'";
        editor.batch_execute(save).await.expect("saved");
        let verdict = settlement(&batch, &Fate::Sent);
        let settling = tokio::spawn({
            let (store, verdict) = (store.clone(), verdict.clone());
            async move { store.settle(&[verdict]).await.expect("settle") }
        });
        let mut has_waited = false;
        while !has_waited && !settling.is_finished() {
            has_waited = count(&client, waits).await > 0;
        }
        editor.batch_execute("COMMIT").await.expect("committed");
        let settled = settling.await.expect("settled");
        assert!(settled.late.is_empty(), "it holds its claim");
        assert_eq!(settled.locked.is_empty(), count(&client, open).await == 0, "{settled:?}");
        if settled.locked.is_empty() {
            assert_eq!(count(&client, LEFT).await, 0);
            if has_waited {
                return;
            }
        } else {
            let again = store.settle(&[verdict]).await.expect("settle");
            assert_eq!(again, Settled::default());
        }
    }
    panic!("no settlement waited for the editor and went on");
}

/// The first relay's attempt fails after an operator took the message from it and another relay sent it.
#[tokio::test]
async fn a_late_failure_does_not_open_what_somebody_else_has_sent() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 2, "PENDING").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    let message = &batch.messages[0].message;
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let key = Key { seq: message.seq, id: message.id.clone() };
    assert_eq!(store.release(action, &[key]).await.expect("release"), 1);
    let other = take(&*store, "noop").await.pop().expect("released");
    store.settle(&[settlement(&other, &Fate::Sent)]).await.expect("settle");
    let failed =
        Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO };
    for fate in [failed, Fate::Sent] {
        let settled = store.settle(&[settlement(&batch, &fate)]).await.expect("settle");
        assert!(settled.late.contains(&message.seq), "{settled:?}");
    }
    let record = store.find(&message.id).await.expect("find").expect("there");
    assert_eq!((record.status.as_str(), record.message.attempts), ("SENT", 0));
}

#[tokio::test]
async fn sent_elsewhere_during_an_attempt_that_fails_it_goes_on_there() {
    let (_database, client, store) = outbox().await;
    for status in ["PENDING", "FAILED"] {
        enqueue(&client, 1, status).await;
        let batch = take(&*store, "noop").await.pop().expect("due");
        let elsewhere = "UPDATE core_outbox.integration_outbox SET integration_type = 'other'
                         WHERE status <> 'SENT'";
        client.execute(elsewhere, &[]).await.expect("changed");
        let failed =
            Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO };
        store.settle(&[settlement(&batch, &failed)]).await.expect("settle");
        assert!(take(&*store, "noop").await.is_empty(), "{status}");
        assert_eq!(store.diagnose().await.expect("diagnose"), [], "{status}");
        let again = take(&*store, "other").await.pop().expect("sent elsewhere");
        store.settle(&[settlement(&again, &Fate::Sent)]).await.expect("settle");
    }
}

/// Tens of thousands of changes by hand take seconds to follow. A take follows some, and hands out what is fresh.
#[tokio::test]
async fn many_changes_by_hand_hold_up_no_other_lane() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 30_000, "PENDING").await;
    let later = "UPDATE core_outbox.integration_outbox SET due_at = now() + interval '1 hour'";
    client.batch_execute(later).await.expect("changed");
    client
        .batch_execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             VALUES ('s', 'e', 'other', 't', '{}')",
        )
        .await
        .expect("fresh");
    let quotas = ["noop", "other"].map(|lane| Quota { integration: lane.to_owned(), rows: 100 });
    let edits = "SELECT count(*) FROM core_outbox.pending_edit";
    let batches = store.take(&wish(&*store, &quotas).await).await.expect("take");
    assert_eq!(batches.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
    let left = count(&client, edits).await;
    assert!(left > 0, "the rest is left to the next take");
    let followed = store.reconcile().await.expect("reconcile").followed;
    assert_eq!(followed, left.unsigned_abs());
    assert_eq!(count(&client, edits).await, 0);
}

/// Whoever looks up a job's message, or cancels one, waits for changes of that message alone.
#[tokio::test]
async fn changes_by_hand_of_other_messages_hold_up_no_job_and_no_cancellation() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 100, "PENDING").await;
    let later = "UPDATE core_outbox.integration_outbox SET due_at = now() + interval '1 hour'";
    client.batch_execute(later).await.expect("changed");
    let edits = "SELECT count(*) FROM core_outbox.pending_edit";
    assert_eq!(count(&client, edits).await, 100);
    let rows = client.query("SELECT id, seq FROM core_outbox.integration_outbox", &[]).await;
    let rows = rows.expect("messages");
    let keys: Vec<Key> =
        rows.iter().map(|row| Key { id: row.get::<_, Uuid>(0).into(), seq: row.get(1) }).collect();
    store.dispatched(&[keys[0].id.clone()]).await.expect("looked up");
    assert_eq!(count(&client, edits).await, 99);
    let action = NewAction { actor: "ann", operation: Operation::Cancel, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    assert_eq!(store.cancel(action, &keys[1..2]).await.expect("cancel"), 1);
    assert_eq!(count(&client, edits).await, 98);
}
