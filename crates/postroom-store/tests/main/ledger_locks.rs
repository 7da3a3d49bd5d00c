//! Takes that wait for their lane while somebody changes what lies in it, on PostgreSQL.

use crate::ledger_outbox::{LEFT, count, enqueue, enqueue_unreadable, outbox, outbox_with, take};
use crate::taking::{all, settlement, wish};
use postroom_core::{Batch, Fate, Key, NewAction, Operation, Quota, Store, StoreErrorKind};
use postroom_store::OpenOptions;
use postroom_testkit::eventually;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use uuid::Uuid;

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
/// before it looks, and so does a sweep; the takes after it are one statement, and so are those that follow a
/// signal.
#[tokio::test]
async fn a_take_that_waited_for_its_lane_delivers_what_was_unpacked_meanwhile_once() {
    let (database, client, store) = outbox().await;
    let looking_on = database.client().await;
    enqueue(&client, 1, "PENDING").await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    }
    let fresh = postroom_store::open(database.url(), &Default::default()).await.expect("store");
    let signalled = postroom_store::open(database.url(), &Default::default()).await.expect("store");
    let mut wake = signalled.wake().await.expect("PostgreSQL signals");
    assert!(take(&*signalled, "noop").await.is_empty());
    for store in [fresh, store, Arc::clone(&signalled)] {
        if Arc::ptr_eq(&store, &signalled) {
            wake.woken().await;
        }
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
                assert!(seen.insert(taken.message.id.clone()), "taken twice");
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
        let shares = shares_once_free(&client, &looking_on, &*store, tasks).await;
        assert_eq!(shares, [3, 3]);
    }
}

/// Frees the lane once both takes wait for it, and sends what they took, none of it twice. How many messages each
/// of them had.
async fn shares_once_free(
    client: &Client,
    looking_on: &Client,
    store: &dyn Store,
    takes: impl IntoIterator<Item = JoinHandle<Vec<Batch>>>,
) -> Vec<usize> {
    eventually("takes that wait", SOON, async || {
        (count(looking_on, WAITING).await == 2).then_some(())
    })
    .await;
    client.batch_execute("COMMIT").await.expect("free");
    let (mut seen, mut shares) = (HashSet::new(), Vec::new());
    for take in takes {
        let seen_before = seen.len();
        for batch in take.await.expect("the take") {
            for taken in &batch.messages {
                assert!(seen.insert(taken.message.id.clone()), "taken twice");
            }
            let settled = store.settle(&[settlement(&batch, &Fate::Sent)]).await;
            assert!(settled.expect("settle").late.is_empty());
        }
        shares.push(seen.len() - seen_before);
    }
    assert_eq!(count(client, LEFT).await, 0);
    shares
}

/// The same for takes that follow a signal: one has everything, and the other finds the mark behind it.
#[tokio::test]
async fn takes_that_follow_a_signal_and_waited_for_one_lane_never_overlap() {
    let (database, client, store) = outbox().await;
    let looking_on = database.client().await;
    let other = postroom_store::open(database.url(), &Default::default()).await.expect("store");
    let mut wakes = Vec::new();
    for store in [&store, &other] {
        assert!(take(&**store, "noop").await.is_empty());
        wakes.push(store.wake().await.expect("PostgreSQL signals"));
    }
    for _ in 0..3 {
        for _ in 0..2 {
            enqueue(&client, 3, "PENDING").await;
        }
        lock_lane(&client).await;
        for wake in &mut wakes {
            wake.woken().await;
        }
        let tasks = [&store, &other]
            .map(Arc::clone)
            .map(|store| tokio::spawn(async move { take(&*store, "noop").await }));
        let shares = shares_once_free(&client, &looking_on, &*store, tasks).await;
        assert_eq!(shares.iter().sum::<usize>(), 6);
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

/// Somebody locks the whole table between the statement that claims and the one that reads. Nobody waits for a
/// claim time after that: what could not be read is not claimed any more.
#[tokio::test]
async fn what_could_not_be_read_is_given_back() {
    let (database, client, store) = outbox().await;
    let mut wake = store.wake().await.expect("PostgreSQL signals");
    for is_signalled in [false, true] {
        // The first round prepares the statements, which needs a look at the table.
        for messages in [1, 3] {
            assert!(take(&*store, "noop").await.is_empty());
            enqueue(&client, messages, "PENDING").await;
            if is_signalled {
                wake.woken().await;
            }
            if messages == 1 {
                for batch in take(&*store, "noop").await {
                    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
                }
                if is_signalled {
                    // The look that is owed.
                    wake.woken().await;
                }
            }
        }
        let locking = database.client().await;
        locking
            .batch_execute(
                "BEGIN; LOCK TABLE core_outbox.integration_outbox IN ACCESS EXCLUSIVE MODE",
            )
            .await
            .expect("locked");
        let quotas = all("noop");
        let refused = store.take(&wish(&*store, &quotas).await).await.expect_err("it is locked");
        assert_eq!(refused.kind, StoreErrorKind::Conflict, "{refused:?}");
        assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.claim").await, 0);
        assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.parcel").await, 1);
        locking.batch_execute("COMMIT").await.expect("free");
        let taken = take(&*store, "noop").await;
        assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
        for batch in &taken {
            store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settle");
        }
        assert_eq!(count(&client, LEFT).await, 0);
    }
}

/// One connection for everything: whoever gives a claim back does not wait for the one it has in hand.
#[tokio::test]
async fn with_one_connection_what_could_not_be_read_is_given_back_too() {
    let (database, client, store) =
        outbox_with(&OpenOptions { connections: 1, ..OpenOptions::default() }).await;
    enqueue(&client, 1, "PENDING").await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    }
    enqueue(&client, 3, "PENDING").await;
    let locking = database.client().await;
    let lock = "BEGIN; LOCK TABLE core_outbox.integration_outbox IN ACCESS EXCLUSIVE MODE";
    locking.batch_execute(lock).await.expect("locked");
    let quotas = all("noop");
    let wish = wish(&*store, &quotas).await;
    store.take(&wish).await.expect_err("it is locked");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.claim").await, 0);
    locking.batch_execute("COMMIT").await.expect("free");
    let taken = take(&*store, "noop").await;
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
}

/// How messages come to be claimed by one statement and read by another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Claimed {
    Parcel,
    ParcelAfterSignal,
    /// Deliveries are claimed and read by one statement, unless there was a reason for caution.
    DeliveriesWithCaution,
}

/// From then on what is claimed is read by a statement of its own.
async fn give_reason_for_caution(client: &Client, store: &dyn Store) {
    enqueue_unreadable(client).await;
    let taken = take(store, "noop").await;
    assert!(taken[0].messages[0].fault.is_some());
    store.settle(&[settlement(&taken[0], &Fate::Sent)]).await.expect("settle");
}

/// Deliveries that were claimed and could not be read then are free as soon as somebody rescues, and none of them
/// counts as rescued.
#[tokio::test]
async fn deliveries_that_could_not_be_read_are_given_up() {
    let (database, client, store) = outbox().await;
    give_reason_for_caution(&client, &*store).await;
    // The first round prepares the statements, which needs a look at the table.
    enqueue(&client, 1, "FAILED").await;
    for batch in take(&*store, "noop").await {
        store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    }
    enqueue(&client, 3, "FAILED").await;
    let locking = database.client().await;
    let lock = "BEGIN; LOCK TABLE core_outbox.integration_outbox IN ACCESS EXCLUSIVE MODE";
    locking.batch_execute(lock).await.expect("locked");
    let quotas = all("noop");
    store.take(&wish(&*store, &quotas).await).await.expect_err("it is locked");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.claim").await, 1, "it had claimed");
    locking.batch_execute("COMMIT").await.expect("free");
    assert_eq!(store.rescue(100).await.expect("rescue"), 3);
    let taken = take(&*store, "noop").await;
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
}

/// Whoever edits between the statement that claims and the one that reads: what is closed then is not delivered,
/// nor what is put off and fresh, and nothing of it stays under the claim when that ends.
#[tokio::test]
async fn what_is_edited_between_take_and_read_is_followed() {
    for claimed in [Claimed::Parcel, Claimed::ParcelAfterSignal, Claimed::DeliveriesWithCaution] {
        let (database, client, store) = outbox().await;
        let mut wake = store.wake().await.expect("PostgreSQL signals");
        assert!(take(&*store, "noop").await.is_empty());
        let is_fresh = claimed != Claimed::DeliveriesWithCaution;
        if !is_fresh {
            give_reason_for_caution(&client, &*store).await;
        }
        // The first round prepares the statements, which needs a look at the table.
        for messages in [1, 3] {
            if messages == 3 {
                for batch in take(&*store, "noop").await {
                    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
                }
                assert!(take(&*store, "noop").await.is_empty());
                if claimed == Claimed::ParcelAfterSignal {
                    // The look that was owed.
                    wake.woken().await;
                }
            }
            enqueue(&client, messages, if is_fresh { "PENDING" } else { "FAILED" }).await;
            if claimed == Claimed::ParcelAfterSignal {
                wake.woken().await;
            }
        }
        let editing = database.client().await;
        // The claim does not look at messages; reading does, and waits.
        editing
            .batch_execute(
                "BEGIN; SET LOCAL statement_timeout = '30s';
                 LOCK TABLE core_outbox.integration_outbox IN ACCESS EXCLUSIVE MODE",
            )
            .await
            .expect("locked");
        let edited = tokio::spawn(async move {
            let edit = "DO $$ DECLARE open uuid[] := ARRAY(SELECT id FROM core_outbox.integration_outbox
                        WHERE status IN ('PENDING', 'FAILED') ORDER BY seq);
                BEGIN
                    WHILE NOT EXISTS (SELECT FROM core_outbox.claim) LOOP
                        PERFORM pg_sleep(0.001);
                    END LOOP;
                    UPDATE core_outbox.integration_outbox SET status = 'CANCELLED' WHERE id = open[1];
                    UPDATE core_outbox.integration_outbox SET due_at = now() + interval '1 hour'
                    WHERE id = open[2];
                END $$";
            editing.batch_execute(edit).await.expect("edited");
            editing.batch_execute("COMMIT").await.expect("committed");
        });
        let taken = take(&*store, "noop").await;
        edited.await.expect("edited");
        let messages = taken.iter().map(|batch| batch.messages.len()).sum::<usize>();
        // A delivery that was due when it was claimed is delivered, put off or not.
        let put_off = if is_fresh { 1 } else { 0 };
        assert_eq!(messages, 2 - put_off, "{claimed:?}");
        for batch in &taken {
            store.settle(&[settlement(batch, &Fate::Sent)]).await.expect("settle");
        }
        assert!(take(&*store, "noop").await.is_empty(), "{claimed:?}");
        let free = "SELECT count(*) FROM core_outbox.delivery WHERE claim IS NULL";
        assert_eq!(
            (count(&client, free).await, count(&client, LEFT).await),
            (put_off as i64, put_off as i64),
            "{claimed:?}: only what is put off, and nobody holds it"
        );
        client
            .batch_execute(
                "UPDATE core_outbox.integration_outbox SET due_at = now()
                 WHERE status IN ('PENDING', 'FAILED')",
            )
            .await
            .expect("due");
        let rest = take(&*store, "noop").await;
        assert_eq!(
            rest.iter().map(|batch| batch.messages.len()).sum::<usize>(),
            put_off,
            "{claimed:?}"
        );
    }
}

/// A take takes deliveries in two parts. Where the second cannot be read, the first is handed out, and nobody
/// rescues it.
#[tokio::test]
async fn the_first_part_of_a_take_stays_claimed_though_the_second_cannot_be_read() {
    let (_database, client, store) = outbox().await;
    give_reason_for_caution(&client, &*store).await;
    enqueue(&client, 4, "FAILED").await;
    // The second claim takes the table away, and reading fails.
    client
        .batch_execute(
            "CREATE FUNCTION core_outbox.hide() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF (SELECT count(*) FROM core_outbox.delivery WHERE claim IS NOT NULL) > 2
                    AND to_regclass('core_outbox.integration_outbox') IS NOT NULL THEN
                     ALTER TABLE core_outbox.integration_outbox RENAME TO hidden;
                 END IF;
                 RETURN NULL;
             END $$;
             CREATE TRIGGER hide AFTER INSERT OR UPDATE ON core_outbox.claim
             FOR EACH STATEMENT EXECUTE FUNCTION core_outbox.hide()",
        )
        .await
        .expect("a trigger");
    let quotas = [Quota { integration: "noop".to_owned(), rows: 4 }];
    let taken = store.take(&wish(&*store, &quotas).await).await.expect("the first part");
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 2);
    client
        .batch_execute(
            "DROP TRIGGER hide ON core_outbox.claim;
             ALTER TABLE core_outbox.hidden RENAME TO integration_outbox",
        )
        .await
        .expect("the table is back");
    assert_eq!(store.rescue(100).await.expect("rescue"), 2, "the second part alone");
    let settled = store.settle(&[settlement(&taken[0], &Fate::Sent)]).await.expect("settle");
    assert!(settled.late.is_empty(), "{settled:?}");
    let rest = take(&*store, "noop").await;
    assert_eq!(rest.iter().map(|batch| batch.messages.len()).sum::<usize>(), 2);
}

/// Changes by hand in a lane that no relay has served are followed while one begins to serve it: it waits, and
/// delivers nothing twice.
#[tokio::test]
async fn a_lane_is_locked_while_it_is_unpacked_though_nobody_has_served_it() {
    for cancels in [false, true] {
        let (database, client, store) = outbox().await;
        let other = postroom_store::open(database.url(), &Default::default()).await.expect("store");
        let looking_on = database.client().await;
        enqueue(&client, 3, "PENDING").await;
        if !cancels {
            let edit = "UPDATE core_outbox.integration_outbox SET due_at = now() - interval '1 s'
                        WHERE seq = 1";
            client.batch_execute(edit).await.expect("changed");
        }
        // Whoever makes deliveries waits here, with the parcel in hand.
        client
            .batch_execute(
                "CREATE FUNCTION core_outbox.wait() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     PERFORM pg_advisory_xact_lock_shared(42);
                     RETURN NEW;
                 END $$;
                 CREATE TRIGGER wait BEFORE INSERT ON core_outbox.delivery
                 FOR EACH ROW EXECUTE FUNCTION core_outbox.wait();
                 SELECT pg_advisory_lock(42)",
            )
            .await
            .expect("a trigger");
        let row =
            client.query_one("SELECT id, seq FROM core_outbox.integration_outbox LIMIT 1", &[]);
        let row = row.await.expect("a message");
        let key = Key { id: row.get::<_, Uuid>(0).into(), seq: row.get(1) };
        let unpacking = tokio::spawn(async move {
            if cancels {
                let action =
                    NewAction { actor: "ann", operation: Operation::Cancel, target: "a test" };
                let action = store.begin_action(&action).await.expect("an action");
                assert_eq!(store.cancel(action, &[key]).await.expect("cancel"), 1);
            } else {
                store.backlog().await.expect("backlog");
            }
        });
        let waiting = async |sessions| {
            eventually("sessions that wait", SOON, async || {
                (count(&looking_on, WAITING).await >= sessions).then_some(())
            })
            .await;
        };
        waiting(1).await;
        let taking = tokio::spawn({
            let other = Arc::clone(&other);
            async move { take(&*other, "noop").await }
        });
        eventually("a take that waits, or is done", SOON, async || {
            let is_over = taking.is_finished() || count(&looking_on, WAITING).await >= 2;
            is_over.then_some(())
        })
        .await;
        client.batch_execute("SELECT pg_advisory_unlock(42)").await.expect("free");
        unpacking.await.expect("unpacked");
        let mut taken = taking.await.expect("the take");
        taken.extend(take(&*other, "noop").await);
        let messages: Vec<_> = taken.iter().flat_map(|batch| &batch.messages).collect();
        let ids: HashSet<_> = messages.iter().map(|taken| taken.message.id.clone()).collect();
        assert_eq!(messages.len(), ids.len(), "cancels: {cancels}");
        assert_eq!(ids.len(), if cancels { 2 } else { 3 });
    }
}

/// Whoever holds a lane may be waiting for the table that is being emptied: neither waits for the other.
#[tokio::test]
async fn a_truncate_does_not_wait_for_a_lane() {
    let (database, client, store) = outbox().await;
    assert!(take(&*store, "noop").await.is_empty());
    enqueue(&client, 3, "PENDING").await;
    let emptying = database.client().await;
    lock_lane(&client).await;
    let truncate = "SET lock_timeout = '5s'; TRUNCATE core_outbox.integration_outbox";
    emptying.batch_execute(truncate).await.expect("emptied");
    client.batch_execute("COMMIT").await.expect("free");
    enqueue(&client, 2, "PENDING").await;
    let taken = take(&*store, "noop").await;
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 2);
}
