//! A data-only restore with triggers on: the deliveries come first, then the messages, whose
//! trigger finds them there.

use postroom_core::Filter;
use postroom_store::OpenOptions;
use postroom_testkit::Postgres;

#[tokio::test]
async fn a_data_only_restore_keeps_every_message_and_every_state() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.delivery
                 (seq, message_id, due_at, bytes, failed, dead, integration, rescues)
             VALUES (1, gen_random_uuid(), 'epoch', 2, true, false, 'noop', 3);
             INSERT INTO core_outbox.integration_outbox
                 (seq, source_stream_id, source_event_id, integration_type, event_type, payload, status)
             SELECT n, 's', 'e' || n, 'noop', 't', '{}', CASE n WHEN 1 THEN 'FAILED' ELSE 'PENDING' END
             FROM generate_series(1, 3) n;
             INSERT INTO core_outbox.integration_outbox
                 (seq, source_stream_id, source_event_id, integration_type, event_type, payload)
             VALUES (4, 's', 'e4', 'noop', 't', '{}')",
        )
        .await
        .expect("restored");
    let rows = client
        .query("SELECT seq, rescues FROM core_outbox.delivery ORDER BY seq", &[])
        .await
        .expect("deliveries");
    let rows: Vec<(i64, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(1, 3), (2, 0), (3, 0), (4, 0)]);
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store");
    let all = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("list");
    assert_eq!(all.len(), 4);
}
