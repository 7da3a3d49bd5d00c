//! Upgrading an outbox on PostgreSQL that is in use.

use postroom_core::{NewMessage, StoreErrorKind};
use postroom_store::{OpenOptions, migrate, open, postgres};
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const VERSION_1: &str = "
    CREATE TABLE core_outbox.schema_migration (
        number int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    );
    INSERT INTO core_outbox.schema_migration (number, name) VALUES (1, 'outbox')";

const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}')";

/// An outbox as the first version made it.
async fn version_1() -> TestDatabase {
    let database = Postgres::shared().await.database().await;
    let client = database.client().await;
    client.batch_execute(postgres::MIGRATIONS[0].sql).await.expect("the first migration");
    client.batch_execute(VERSION_1).await.expect("its record");
    database
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_is_upgraded_by_several_at_once_while_producers_write() {
    let database = version_1().await;
    let producing = Arc::new(AtomicBool::new(true));
    let client = database.client().await;
    let producer = tokio::spawn({
        let producing = Arc::clone(&producing);
        async move {
            let mut produced = 0_i64;
            while producing.load(Ordering::Relaxed) {
                client.batch_execute(INSERT).await.expect("a producer is never refused");
                produced += 1;
            }
            produced
        }
    });
    let mut migrators = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = database.url().to_owned();
        migrators.spawn(async move { migrate(&url).await.expect("migrate") });
    }
    let mut applied = migrators.join_all().await.concat();
    producing.store(false, Ordering::Relaxed);
    let produced = producer.await.expect("the producer");
    applied.sort_unstable();
    let missing: Vec<u32> = postgres::MIGRATIONS.iter().skip(1).map(|one| one.number).collect();
    assert_eq!(applied, missing);
    let store = open(database.url(), &OpenOptions::default()).await.expect("opens");
    store.ready().await.expect("ready");
    let waiting = store.backlog().await.expect("backlog").total(|lane| lane.pending);
    assert_eq!(i64::try_from(waiting).expect("a count"), produced);
}

/// Such a message has no delivery: someone must decide which of the two is to keep the number.
#[tokio::test]
async fn a_number_given_twice_stops_the_upgrade_and_can_be_mended() {
    let database = version_1().await;
    let client = database.client().await;
    for _ in 0..2 {
        let twice = INSERT.replace("payload)", "payload, seq)").replace("'{}')", "'{}', 7)");
        client.batch_execute(&twice).await.expect("the first version lets it in");
    }
    let error = migrate(database.url()).await.expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::Refused);
    assert!(error.to_string().contains("outbox_seq"), "{error}");
    let store = open(database.url(), &OpenOptions::default()).await.expect("opens");
    let error = store.ready().await.expect_err("not upgraded");
    assert_eq!(error.kind, StoreErrorKind::Schema);

    let mend = "UPDATE core_outbox.integration_outbox
                SET seq = nextval(pg_get_serial_sequence('core_outbox.integration_outbox', 'seq'))
                WHERE id = (SELECT id FROM core_outbox.integration_outbox LIMIT 1)";
    client.batch_execute(mend).await.expect("mended");
    migrate(database.url()).await.expect("migrate");
    store.ready().await.expect("ready");
    store.enqueue(&NewMessage::new("noop", "t").json(&1)).await.expect("enqueue");
}

#[tokio::test]
async fn what_a_relay_of_the_first_version_held_is_rescued() {
    let database = version_1().await;
    let client = database.client().await;
    for _ in 0..3 {
        client.batch_execute(INSERT).await.expect("inserted");
    }
    // As that version claimed: without naming what it holds.
    let claim = "
        WITH held AS (
            INSERT INTO core_outbox.claim (token, worker, since, until, alone)
            VALUES (gen_random_uuid(), 'old', now() - interval '2 s', now() - interval '1 s', false)
            RETURNING token
        )
        UPDATE core_outbox.delivery SET claim = held.token FROM held
        WHERE seq = (SELECT min(seq) FROM core_outbox.delivery WHERE claim IS NULL)";
    client.batch_execute(claim).await.expect("claimed before the upgrade");
    migrate(database.url()).await.expect("migrated");
    client.batch_execute(claim).await.expect("claimed by one that has not noticed yet");

    let store = open(database.url(), &OpenOptions::default()).await.expect("opens");
    assert_eq!(store.rescue(10).await.expect("rescued"), 2);
    let backlog = store.backlog().await.expect("backlog");
    assert_eq!((backlog.total(|lane| lane.pending), backlog.total(|lane| lane.claimed)), (3, 0));
    let claims = client.query_one("SELECT count(*) FROM core_outbox.claim", &[]).await;
    assert_eq!(claims.expect("a count").get::<_, i64>(0), 0);
}
