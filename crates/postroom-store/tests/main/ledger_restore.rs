//! Dumps and restores of the ledger on PostgreSQL: whole, of the data alone, of messages or ledger without the
//! other. Whatever was open is taken once, and nothing that was SENT.

use crate::taking::{all, settlement, wish};
use postroom_core::{
    Batch, Fate, Filter, Key, MessageId, NewAction, Operation, Quota, Reconciled, Rescued, Status,
    Store,
};
use postroom_store::OpenOptions;
use postroom_testkit::{Dump, Postgres, TestDatabase, eventually, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

const LANE: &str = "noop";
const PATIENCE: Duration = Duration::from_secs(20);

/// 300 fresh messages in parcels, some alone in theirs.
const FRESH: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}' FROM generate_series(1, 297);
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}');
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}');
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}')";

/// An outbox with messages of every state.
struct Source {
    database: TestDatabase,
    open: BTreeSet<MessageId>,
    dead: usize,
}

async fn migrated() -> (TestDatabase, Client, Arc<dyn Store>) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    let store = opened(&database).await;
    (database, client, store)
}

async fn opened(database: &TestDatabase) -> Arc<dyn Store> {
    postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store")
}

impl Source {
    /// SENT, in parcels that nobody holds, in parcels that a relay held and settled in part, failed, given
    /// back, delayed and due by now, dead.
    async fn filled() -> Self {
        let (database, client, store) = migrated().await;
        let quotas = [Quota { integration: LANE.to_owned(), rows: 150 }];
        let brief = wish(&*store, &quotas).await;
        client.batch_execute(FRESH).await.expect("messages");
        let batches = store.take(&brief).await.expect("take");
        let sent = batches.iter().map(|batch| settlement(batch, &Fate::Sent));
        store.settle(&sent.collect::<Vec<_>>()).await.expect("settle");
        for fate in [
            Fate::Failed { delay: Duration::ZERO, error: "away".to_owned(), took: Duration::ZERO },
            Fate::Released,
            Fate::Dead { error: "gone".to_owned(), tried: None, announcement: None },
            Fate::Sent,
        ] {
            client.batch_execute(FRESH).await.expect("messages");
            for batch in store.take(&brief).await.expect("take") {
                let mut settlement = settlement(&batch, &fate);
                // The rest is lost with its relay.
                settlement.verdicts.truncate(batch.messages.len() / 2);
                settlement.finished = false;
                store.settle(&[settlement]).await.expect("settle");
            }
        }
        client
            .batch_execute(
                "INSERT INTO core_outbox.integration_outbox
                     (source_stream_id, source_event_id, integration_type, event_type, payload, due_at)
                 SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}', now() + interval '3 seconds'
                 FROM generate_series(1, 10)",
            )
            .await
            .expect("delayed");
        let open = ids(&client, "status IN ('PENDING', 'FAILED')").await;
        let dead = ids(&client, "status = 'DEAD'").await.len();
        for status in ["SENT", "DEAD", "PENDING", "FAILED"] {
            assert!(!ids(&client, &format!("status = '{status}'")).await.is_empty(), "{status}");
        }
        store.leave(brief.relay).await.expect("the relay is gone");
        Self { database, open, dead }
    }
}

/// What a test says where it cannot run.
fn without_pg_dump(name: &str) {
    skip(name, "pg_dump of the server's version is not installed");
}

async fn ids(client: &Client, which: &str) -> BTreeSet<MessageId> {
    let sql = format!("SELECT id FROM core_outbox.integration_outbox WHERE {which}");
    client
        .query(&sql, &[])
        .await
        .expect("ids")
        .iter()
        .map(|row| row.get::<_, Uuid>(0).into())
        .collect()
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a count").get(0)
}

/// Takes everything that is due before any of it is settled, as relays do side by side, until nothing is open;
/// how often each message was taken.
async fn deliver(store: &dyn Store, client: &Client) -> BTreeMap<MessageId, usize> {
    let mut taken = BTreeMap::new();
    eventually("nothing to be open", PATIENCE, async || {
        store.rescue(100).await.expect("rescue");
        let batches = take_all(store).await;
        for message in batches.iter().flat_map(|batch| &batch.messages) {
            *taken.entry(message.message.id.clone()).or_default() += 1;
        }
        let sent: Vec<_> = batches.iter().map(|batch| settlement(batch, &Fate::Sent)).collect();
        store.settle(&sent).await.expect("settle");
        ids(client, "status IN ('PENDING', 'FAILED')").await.is_empty().then_some(())
    })
    .await;
    taken
}

async fn take_all(store: &dyn Store) -> Vec<Batch> {
    let quotas = all(LANE);
    let wish = wish(store, &quotas).await;
    let mut batches = Vec::new();
    loop {
        let mut more = store.take(&wish).await.expect("take");
        for which in [Rescued::Together, Rescued::Alone] {
            more.extend(store.take_rescued(&wish, which).await.expect("take rescued"));
        }
        if more.is_empty() {
            return batches;
        }
        batches.extend(more);
    }
}

/// Each of these was taken, once, and nothing else.
fn assert_once(taken: &BTreeMap<MessageId, usize>, open: &BTreeSet<MessageId>) {
    let once: BTreeMap<MessageId, usize> = open.iter().map(|id| (id.clone(), 1)).collect();
    assert_eq!(taken.len(), once.len());
    assert!(*taken == once, "some were taken more than once");
}

/// Nothing is left but the deliveries of dead messages.
async fn assert_empty(store: &dyn Store, client: &Client) {
    let left = "SELECT (SELECT count(*) FROM core_outbox.parcel) + (SELECT count(*) FROM core_outbox.claim)
                    + (SELECT count(*) FROM core_outbox.delivery WHERE state <> 'd')
                    + (SELECT count(*) FROM core_outbox.pending_edit)";
    assert_eq!(count(client, left).await, 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

/// A database that is younger than its source: the numbers of its parcels begin with a later second.
async fn younger() -> (TestDatabase, Client, Arc<dyn Store>) {
    let elsewhere = Postgres::shared().await.database().await;
    let server = elsewhere.client().await;
    let second = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    let now = count(&server, second).await;
    // Rounded, so it takes two of them.
    eventually("the next second", PATIENCE, async || {
        (count(&server, second).await > now + 1).then_some(())
    })
    .await;
    migrated().await
}

#[tokio::test]
async fn a_full_restore_delivers_what_was_open_once() {
    let source = Source::filled().await;
    let Some(dump) = Dump::of(&source.database, &[]) else {
        return without_pg_dump("a_full_restore_delivers_what_was_open_once");
    };
    let database = Postgres::shared().await.database().await;
    dump.restore(&database, "");
    let (client, store) = (database.client().await, opened(&database).await);
    assert_once(&deliver(&*store, &client).await, &source.open);
    assert_empty(&*store, &client).await;
}

/// The trigger makes parcels of messages whose parcels are restored too.
#[tokio::test]
async fn a_restore_of_the_data_with_triggers_on_is_noticed_and_delivered_once() {
    let source = Source::filled().await;
    let only = [
        "--data-only",
        "--schema=core_outbox",
        "--exclude-table-data=core_outbox.schema_migration",
    ];
    let Some(dump) = Dump::of(&source.database, &only) else {
        return without_pg_dump(
            "a_restore_of_the_data_with_triggers_on_is_noticed_and_delivered_once",
        );
    };
    let (database, client, store) = younger().await;
    dump.restore(&database, "");
    let doubled =
        "SELECT count(*) FROM (SELECT unnest(refs) AS id FROM core_outbox.parcel) AS named
                   GROUP BY id ORDER BY count(*) DESC LIMIT 1";
    assert_eq!(count(&client, doubled).await, 2, "parcels were made again");
    assert_once(&deliver(&*store, &client).await, &source.open);
    assert_empty(&*store, &client).await;
    // New ones are found, though the sequence was set back.
    client.batch_execute(FRESH).await.expect("messages");
    assert_eq!(deliver(&*store, &client).await.len(), 300);
}

#[tokio::test]
async fn messages_restored_without_their_ledger_are_noticed_and_delivered_once() {
    let source = Source::filled().await;
    let only = ["--data-only", "--table=core_outbox.integration_outbox"];
    let Some(dump) = Dump::of(&source.database, &only) else {
        return without_pg_dump(
            "messages_restored_without_their_ledger_are_noticed_and_delivered_once",
        );
    };
    let (database, client, store) = migrated().await;
    dump.restore(&database, "-c session_replication_role=replica");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.parcel").await, 0);
    assert_once(&deliver(&*store, &client).await, &source.open);
    let dead = "SELECT count(*) FROM core_outbox.delivery WHERE state = 'd'";
    assert_eq!(usize::try_from(count(&client, dead).await).ok(), Some(source.dead));
    assert_empty(&*store, &client).await;
}

/// Of a lane that no relay has ever served, and that has no cursor for it.
#[tokio::test]
async fn messages_in_two_parcels_of_a_lane_nobody_serves_are_mended() {
    let (_database, client, store) = migrated().await;
    client.batch_execute(FRESH).await.expect("messages");
    let again = "INSERT INTO core_outbox.parcel
        SELECT lane, nextval('core_outbox.parcel_number'), due_at, lowest, bytes, integration, refs
        FROM core_outbox.parcel";
    client.batch_execute(again).await.expect("as a restore with triggers on does");
    assert_eq!(store.diagnose().await.expect("diagnose").len(), 1);
    assert!(store.reconcile().await.expect("reconcile").total() > 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    assert_eq!(deliver(&*store, &client).await.values().sum::<usize>(), 300);
}

/// Somebody empties the table, and brings its messages back while no relay runs and no trigger fires.
#[tokio::test]
async fn messages_that_come_back_into_their_outbox_are_noticed_and_delivered_once() {
    let (database, client, store) = migrated().await;
    client.batch_execute(FRESH).await.expect("messages");
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    client.batch_execute(FRESH).await.expect("messages");
    let open = ids(&client, "status = 'PENDING'").await;
    client
        .batch_execute(
            "CREATE TABLE kept AS SELECT * FROM core_outbox.integration_outbox;
             TRUNCATE core_outbox.integration_outbox;
             SET session_replication_role = replica;
             INSERT INTO core_outbox.integration_outbox SELECT * FROM kept;
             SET session_replication_role = origin",
        )
        .await
        .expect("restored");
    let store = opened(&database).await;
    assert!(store.looks_restored().await.expect("a look"));
    assert_once(&deliver(&*store, &client).await, &open);
    assert_empty(&*store, &client).await;
}

/// Messages that were postponed, released or opened again have a token of their last outcome. Restored alone
/// while triggers fire, they are held like any other.
#[tokio::test]
async fn restored_with_an_outcome_on_record_a_message_is_shown_as_claimed_and_is_rescued() {
    let (_database, client, store) = migrated().await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, settled)
             SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}', gen_random_uuid()
             FROM generate_series(1, 3)",
        )
        .await
        .expect("restored");
    let quotas = all(LANE);
    let wish = wish(&*store, &quotas).await;
    let taken = store.take(&wish).await.expect("take");
    assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 3);
    let claimed = "SELECT count(*) FROM core_outbox.messages WHERE status = 'CLAIMED'";
    assert_eq!(count(&client, claimed).await, 3);
    store.leave(wish.relay).await.expect("the relay is gone");
    assert_eq!(store.rescue(100).await.expect("rescue"), 3);
}

/// Parcels are found by the numbers of their messages.
#[tokio::test]
async fn a_message_that_got_a_number_of_its_own_can_be_cancelled() {
    let (_database, client, store) = migrated().await;
    let enqueue = "INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
        VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}')";
    client.batch_execute(enqueue).await.expect("a message");
    let behind =
        "SELECT setval(pg_get_serial_sequence('core_outbox.integration_outbox', 'seq'), 1, false)";
    client.batch_execute(behind).await.expect("set back");
    client.batch_execute(enqueue).await.expect("another of that number");
    // One of them stands in two parcels besides.
    client
        .batch_execute(
            "INSERT INTO core_outbox.parcel
             SELECT lane, nextval('core_outbox.parcel_number'), due_at, lowest, bytes, integration, refs
             FROM core_outbox.parcel ORDER BY number DESC LIMIT 1;
             SELECT setval(pg_get_serial_sequence('core_outbox.integration_outbox', 'seq'), 1000)",
        )
        .await
        .expect("doubled");
    assert!(store.reconcile().await.expect("reconcile").numbered > 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    let rows = client.query("SELECT id, seq FROM core_outbox.integration_outbox", &[]).await;
    let keys: Vec<Key> = rows
        .expect("messages")
        .iter()
        .map(|row| Key { id: row.get::<_, Uuid>(0).into(), seq: row.get(1) })
        .collect();
    assert_ne!(keys[0].seq, keys[1].seq);
    let action = NewAction { actor: "ann", operation: Operation::Cancel, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    assert_eq!(store.cancel(action, &keys).await.expect("cancel"), 2);
    assert_eq!(take_all(&*store).await.len(), 0);
}

/// A sequence that was behind gave one number to messages of two tenants: whoever cancels those of one does not
/// touch the other's.
#[tokio::test]
async fn a_filter_finds_no_other_message_of_the_same_number() {
    let (_database, client, store) = migrated().await;
    for tenant in ["a", "b"] {
        let enqueue = "INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload, seq, tenant_id,
             due_at)
            VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}', 1, $1, now() + interval '1 hour')";
        client.execute(enqueue, &[&tenant]).await.expect("a message");
    }
    for status in [None, Some(Status::Pending)] {
        let filter =
            Filter { status, tenant: Some("a".to_owned()), limit: 10, ..Filter::default() };
        let found = store.list(&filter).await.expect("list");
        let tenants: Vec<_> =
            found.iter().filter_map(|one| one.message.tenant_id.as_deref()).collect();
        assert_eq!(tenants, ["a"], "{status:?}");
    }
}

/// A switchover to a replica, whose sequence is behind, under a store that has taken before: new parcels lie
/// below the low-water mark, and whoever asks once a minute notices.
#[tokio::test]
async fn numbers_left_behind_under_a_running_relay_are_noticed() {
    let (_database, client, store) = migrated().await;
    client.batch_execute(FRESH).await.expect("messages");
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    assert!(!store.looks_restored().await.expect("a look"));
    client
        .batch_execute(
            "SELECT setval('core_outbox.parcel_number', 1);
             UPDATE core_outbox.lane_cursor SET low_water = mark",
        )
        .await
        .expect("set back");
    client.batch_execute(FRESH).await.expect("messages");
    assert_eq!(take_all(&*store).await.len(), 0, "they are hidden");
    assert!(store.looks_restored().await.expect("a look"));
    store.reconcile().await.expect("reconcile");
    assert!(!store.looks_restored().await.expect("a look"));
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    assert_empty(&*store, &client).await;
}

/// As above, and the sequence has passed the marks again before anybody looks: the numbers in use say
/// nothing then, but the parcels below the low-water mark are still there.
#[tokio::test]
async fn parcels_below_the_low_water_mark_are_noticed_after_their_numbers_have_caught_up() {
    let (_database, client, store) = migrated().await;
    client.batch_execute(FRESH).await.expect("messages");
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    client
        .batch_execute(
            "UPDATE core_outbox.lane_cursor SET low_water = mark;
             SELECT setval('core_outbox.parcel_number', 1)",
        )
        .await
        .expect("set back");
    client.batch_execute(FRESH).await.expect("messages");
    client
        .batch_execute(
            "SELECT setval('core_outbox.parcel_number', max(mark)) FROM core_outbox.lane_cursor",
        )
        .await
        .expect("caught up");
    assert_eq!(take_all(&*store).await.len(), 0, "they are hidden");
    assert!(store.looks_restored().await.expect("a look"));
    store.reconcile().await.expect("reconcile");
    assert!(!store.looks_restored().await.expect("a look"));
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    assert_empty(&*store, &client).await;
}

/// A drained outbox has a history and an empty ledger, and nobody looks through it at each start.
#[tokio::test]
async fn a_drained_outbox_does_not_look_restored() {
    let (database, client, store) = migrated().await;
    assert!(!store.looks_restored().await.expect("a look"), "a new one");
    let odd = "INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status)
        VALUES ('s', 'odd', 'noop', 't', '{}', 'PENDNG')";
    client.batch_execute(odd).await.expect("a status nobody knows");
    assert!(!store.looks_restored().await.expect("a look"), "nothing is open");
    client.batch_execute(FRESH).await.expect("messages");
    assert!(!store.looks_restored().await.expect("a look"), "nobody has taken yet");
    assert_eq!(deliver(&*store, &client).await.len(), 300);
    assert!(!opened(&database).await.looks_restored().await.expect("a look"));
}

#[tokio::test]
async fn a_ledger_restored_without_its_messages_delivers_nothing_and_is_cleaned_up() {
    let source = Source::filled().await;
    let only =
        ["parcel", "delivery", "claim", "lane_cursor"].map(|t| format!("--table=core_outbox.{t}"));
    let only: Vec<&str> =
        ["--data-only"].into_iter().chain(only.iter().map(String::as_str)).collect();
    let Some(dump) = Dump::of(&source.database, &only) else {
        return without_pg_dump(
            "a_ledger_restored_without_its_messages_delivers_nothing_and_is_cleaned_up",
        );
    };
    for reconciles_first in [false, true] {
        let (database, client, store) = migrated().await;
        dump.restore(&database, "");
        if !reconciles_first {
            assert_eq!(deliver(&*store, &client).await.len(), 0);
        }
        store.reconcile().await.expect("reconcile");
        assert_eq!(deliver(&*store, &client).await.len(), 0);
        assert_eq!(store.reconcile().await.expect("reconcile"), Reconciled::default());
        assert_empty(&*store, &client).await;
        client.batch_execute(FRESH).await.expect("messages");
        assert_eq!(deliver(&*store, &client).await.len(), 300);
        assert_empty(&*store, &client).await;
    }
}

/// Its transaction began a while before, and its clock is ahead of the database's.
#[tokio::test]
async fn a_message_due_in_a_moment_is_fresh_and_delivered_once_it_is_due() {
    let (_database, client, store) = migrated().await;
    client
        .batch_execute(
            "BEGIN; SELECT pg_sleep(0.05);
             INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, due_at)
             VALUES ('s', 'e', 'noop', 't', '{}', clock_timestamp() + interval '500 ms');
             COMMIT",
        )
        .await
        .expect("a message");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.parcel").await, 1);
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.delivery").await, 0);
    let quotas = all(LANE);
    let early =
        "SELECT count(*) FROM core_outbox.integration_outbox WHERE due_at > clock_timestamp()";
    let batch = eventually("the message", PATIENCE, async || {
        let wish = wish(&*store, &quotas).await;
        let batches = store.take(&wish).await.expect("take");
        let batch = batches.into_iter().next()?;
        assert_eq!(count(&client, early).await, 0, "taken before it was due");
        Some(batch)
    })
    .await;
    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    assert_eq!(ids(&client, "status = 'SENT'").await.len(), 1);
    assert_empty(&*store, &client).await;
}
