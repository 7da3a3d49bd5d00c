//! Migrating an outbox on PostgreSQL that is in use.

use crate::old_table::OldTable;
use postroom_store::{OpenOptions, migrate, open};
use postroom_testkit::Postgres;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('s', gen_random_uuid()::text, 'noop', 't', '{}')";

/// The tables, and the columns of tables, that have no comment.
const WITHOUT_COMMENT: &str = "
    SELECT c.relname::text
    FROM pg_class c
    WHERE c.relnamespace = 'core_outbox'::regnamespace AND c.relkind = 'r'
      AND obj_description(c.oid, 'pg_class') IS NULL
    UNION ALL
    SELECT c.relname || '.' || a.attname
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'core_outbox'::regnamespace AND c.relkind = 'r'
      AND col_description(c.oid, a.attnum) IS NULL
    ORDER BY 1";

/// Psql shows it by `\d+`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_and_column_says_what_it_is_for() {
    let fresh = Postgres::shared().await.database().await;
    migrate(fresh.url()).await.expect("migrate");
    let adopted = OldTable::empty().await;
    migrate(adopted.url()).await.expect("adopted");
    for client in [fresh.client().await, adopted.database.client().await] {
        let rows = client.query(WITHOUT_COMMENT, &[]).await.expect("the catalog");
        let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(names, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_is_migrated_by_several_at_once_while_producers_write() {
    let database = Postgres::shared().await.database().await;
    migrate(database.url()).await.expect("the first time");
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
    let applied = migrators.join_all().await.concat();
    producing.store(false, Ordering::Relaxed);
    let produced = producer.await.expect("the producer");
    assert_eq!(applied, [0; 0], "once is enough");
    let store = open(database.url(), &OpenOptions::default()).await.expect("opens");
    store.ready().await.expect("ready");
    let waiting = store.backlog().await.expect("backlog").total(|lane| lane.pending);
    assert_eq!(i64::try_from(waiting).expect("a count"), produced);
}
