//! Restores on PostgreSQL: of the data alone, with triggers on or off, and what they do to numbers.

use crate::taking::{all, wish};
use postroom_core::{Filter, Reconciled, Severity, Store};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use tokio_postgres::Client;

const FIFTY_NEW: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}' FROM generate_series(1, 50)
    ON CONFLICT DO NOTHING";

async fn outbox() -> (TestDatabase, Client, Arc<dyn Store>) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store");
    (database, client, store)
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a count").get(0)
}

/// How many of a lane are taken, all at once.
async fn taken(store: &dyn Store, lane: &str) -> usize {
    let quotas = all(lane);
    let batches = store.take(&wish(store, &quotas).await).await.expect("take");
    batches.iter().map(|batch| batch.messages.len()).sum()
}

/// A restore of the data alone brings rows with their numbers and may leave the sequence at 1. New
/// messages are kept whole all the same; `check` sees the sequence, and `reconcile` moves it and tells the
/// messages apart.
#[tokio::test]
async fn fault_46_a_sequence_left_behind_is_seen_and_mended() {
    let (_database, client, store) = outbox().await;
    client.batch_execute(FIFTY_NEW).await.expect("old messages");
    client
        .batch_execute("ALTER TABLE core_outbox.integration_outbox ALTER COLUMN seq RESTART")
        .await
        .expect("left behind");
    let findings = store.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].severity, Severity::Fault);
    assert!(findings[0].problem.contains("sequence"), "{findings:?}");
    assert!(findings[0].remedy.contains("postroom reconcile"), "{findings:?}");

    client.batch_execute(FIFTY_NEW).await.expect("numbers that are in use harm nobody");
    assert_eq!(taken(&*store, "noop").await, 100);
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!(mended, Reconciled { numbered: 50, ..Reconciled::default() });
    assert_eq!(store.diagnose().await.expect("diagnose"), []);

    client
        .batch_execute("ALTER TABLE core_outbox.integration_outbox ALTER COLUMN seq RESTART")
        .await
        .expect("left behind");
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!(mended, Reconciled { advanced: 1, ..Reconciled::default() });
    client.batch_execute(FIFTY_NEW).await.expect("kept");
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    assert_eq!(taken(&*store, "noop").await, 50);
}

/// Numbers of SENT messages are given out again without an error, and the messages kept; reconciling
/// tells them apart.
#[tokio::test]
async fn fault_46_messages_that_share_a_number_are_delivered_and_told_apart() {
    let (_database, client, store) = outbox().await;
    client.batch_execute(FIFTY_NEW).await.expect("old messages");
    client
        .batch_execute(
            "UPDATE core_outbox.integration_outbox SET status = 'SENT';
             ALTER TABLE core_outbox.integration_outbox ALTER COLUMN seq RESTART",
        )
        .await
        .expect("left behind");
    client.batch_execute(FIFTY_NEW).await.expect("kept");
    assert_eq!(taken(&*store, "noop").await, 50);
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!(mended, Reconciled { numbered: 50, ..Reconciled::default() });
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let numbers = "SELECT count(DISTINCT seq) FROM core_outbox.integration_outbox";
    assert_eq!(count(&client, numbers).await, 100);
    // One that was sent before can be opened again.
    client
        .batch_execute(
            "UPDATE core_outbox.integration_outbox SET status = 'PENDING' WHERE status = 'SENT'",
        )
        .await
        .expect("opened again");
    assert_eq!(taken(&*store, "noop").await, 50);
}

/// Rows that came back under old numbers while triggers were off: reconciling once is enough.
#[tokio::test]
async fn fault_45_one_reconciliation_is_enough_after_a_truncate() {
    let (_database, client, store) = outbox().await;
    client.batch_execute(FIFTY_NEW).await.expect("old messages");
    assert_eq!(taken(&*store, "noop").await, 50);
    client
        .batch_execute(&format!(
            "TRUNCATE core_outbox.integration_outbox RESTART IDENTITY;
             BEGIN; SET LOCAL session_replication_role = replica; {FIFTY_NEW}; COMMIT"
        ))
        .await
        .expect("restored");
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!(mended, Reconciled { made: 50, ..Reconciled::default() });
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    assert_eq!(taken(&*store, "noop").await, 50);
}

/// With triggers on, the deliveries come first, then the messages, whose trigger finds them there.

#[tokio::test]
async fn a_data_only_restore_keeps_every_message_and_every_state() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.delivery
                 (message_id, seq, due_at, since, lane, bytes, state, integration, rescues)
             VALUES ('00000000-0000-0000-0000-000000000001', 1, 'epoch', 'epoch',
                     core_outbox.lane_of('noop'), 2, 'f', 'noop', 3);
             INSERT INTO core_outbox.integration_outbox
                 (id, seq, source_stream_id, source_event_id, integration_type, event_type, payload, status)
             SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, n, 's', 'e' || n, 'noop', 't', '{}', CASE n WHEN 1 THEN 'FAILED' ELSE 'PENDING' END
             FROM generate_series(1, 3) n;
             INSERT INTO core_outbox.integration_outbox
                 (seq, source_stream_id, source_event_id, integration_type, event_type, payload)
             VALUES (4, 's', 'e4', 'noop', 't', '{}')",
        )
        .await
        .expect("restored");
    let rescues = "SELECT max(rescues)::bigint FROM core_outbox.delivery";
    assert_eq!(count(&client, rescues).await, 3, "its delivery was there");
    let fresh = "SELECT sum(cardinality(refs))::bigint FROM core_outbox.parcel";
    assert_eq!(count(&client, fresh).await, 3);
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store");
    let all = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("list");
    assert_eq!(all.len(), 4);
}

/// A standby that never had a lane's cursor takes over under a running relay: it is made again.
#[tokio::test]
async fn fault_53_a_lane_whose_cursor_is_gone_is_taken_from_again() {
    let (_database, client, store) = outbox().await;
    assert_eq!(taken(&*store, "noop").await, 0);
    client.batch_execute("DELETE FROM core_outbox.lane_cursor").await.expect("gone");
    client.batch_execute(FIFTY_NEW).await.expect("new messages");
    assert_eq!(taken(&*store, "noop").await, 50);
}
