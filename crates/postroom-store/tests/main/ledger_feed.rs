//! What the insert trigger makes of whatever a producer writes, on PostgreSQL. It never fails the producer.

use crate::ledger_outbox::{count, enqueue, outbox, take};
use futures_util::SinkExt as _;
use std::io::Cursor;
use std::pin::pin;
use tokio_postgres::Client;

/// Every status with every due time and odd content, in several lanes: 5 * 4 * 4 rows. What has a status nobody
/// knows is left alone.
const MIXED: &str = r#"
    SELECT 's' AS stream, 'e' || row_number() OVER () AS event, lane, payload::jsonb, headers::jsonb, status,
           due_at
    FROM (VALUES ('PENDING'), ('FAILED'), ('DEAD'), ('SENT'), ('ODD')) AS s (status),
         (VALUES (timestamptz '0001-01-01Z'), (now()), (clock_timestamp() + interval '500 ms'),
                 (timestamptz '9999-12-31Z')) AS d (due_at),
         (VALUES ('noop', '{}', NULL), ('', 'null', 'null'), ('webhook:ä', '[1, "x"]', '[]'),
                 (repeat('x', 120), '""', '{"postroom-replay-of": 1}')) AS c (lane, payload, headers)"#;
const INSERT: &str = "INSERT INTO core_outbox.integration_outbox \
    (source_stream_id, source_event_id, integration_type, event_type, payload, headers, status, due_at) \
    SELECT one.stream, one.event, one.lane, 't', one.payload, one.headers, one.status, one.due_at";

/// As many as `MIXED` has: PENDING that is due, in four lanes; PENDING for later, FAILED and DEAD.
async fn assert_fed(client: &Client) {
    let named = "SELECT coalesce(sum(cardinality(refs)), 0)::bigint FROM core_outbox.parcel";
    assert_eq!(count(client, named).await, 3 * 4);
    assert_eq!(count(client, "SELECT count(*) FROM core_outbox.delivery").await, 4 + 16 + 16);
}

#[tokio::test]
async fn whatever_a_producer_inserts_is_fed_and_never_refused() {
    let (_database, client, _store) = outbox().await;
    let at_once = format!("{INSERT} FROM ({MIXED}) AS one");
    assert_eq!(client.execute(&at_once, &[]).await.expect("in one statement"), 80);
    assert_fed(&client).await;

    // One by one, where events are remembered.
    client
        .batch_execute(
            "TRUNCATE core_outbox.integration_outbox;
             INSERT INTO core_outbox.remembered
             VALUES (core_outbox.dedupe_key('e1', 's', 'another', 0), now() + interval '1 day')",
        )
        .await
        .expect("emptied");
    let each = format!(
        "DO $$ DECLARE one record; BEGIN FOR one IN {MIXED} LOOP {INSERT}; END LOOP; END $$"
    );
    client.batch_execute(&each).await.expect("one by one");
    assert_fed(&client).await;
}

#[tokio::test]
async fn a_copy_is_fed_like_an_insert() {
    let (_database, client, _store) = outbox().await;
    let row = |n: usize| format!("s\te{n}\tnoop\tt\t{{}}\t{}\n", ["PENDING", "FAILED"][n % 2]);
    let rows: String = (0..200).map(row).collect();
    let copy = "COPY core_outbox.integration_outbox \
        (source_stream_id, source_event_id, integration_type, event_type, payload, status) FROM STDIN";
    let mut sink = pin!(client.copy_in::<_, Cursor<String>>(copy).await.expect("copy"));
    sink.send(Cursor::new(rows)).await.expect("rows");
    assert_eq!(sink.finish().await.expect("copied"), 200);
    let named = "SELECT sum(cardinality(refs))::bigint FROM core_outbox.parcel";
    assert_eq!(count(&client, named).await, 100);
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.delivery").await, 100);
}

/// A restore or a switchover set the sequence back to where parcels are. Neither the producer nor what is
/// there notices, and every message stands in one parcel.
#[tokio::test]
async fn parcels_whose_number_is_in_use_get_another() {
    let (_database, client, store) = outbox().await;
    client.batch_execute("SELECT setval('core_outbox.parcel_number', 1000)").await.expect("set");
    for _ in 0..5 {
        enqueue(&client, 1, "PENDING").await;
    }
    enqueue(&client, 200, "PENDING").await;
    let before = "SELECT array_agg(p::text ORDER BY number) FROM core_outbox.parcel p
                  WHERE number <= 1009";
    let there: Vec<String> = client.query_one(before, &[]).await.expect("parcels").get(0);

    let back = "SELECT setval('core_outbox.parcel_number', 1000)";
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for messages in [1, 200] {
            client.batch_execute(back).await.expect("set back");
            let begin = format!("BEGIN ISOLATION LEVEL {isolation}");
            client.batch_execute(&begin).await.expect("begin");
            enqueue(&client, messages, "PENDING").await;
            client.batch_execute("COMMIT").await.expect("the producer is not refused");
        }
    }
    let now: Vec<String> = client.query_one(before, &[]).await.expect("parcels").get(0);
    assert_eq!(now[..there.len()], there, "those that were there stay as they are");
    let named = "SELECT count(DISTINCT id) FROM core_outbox.parcel, unnest(refs) AS id";
    assert_eq!(count(&client, named).await, 205 + 3 * 201);
    let doubled = "SELECT count(*) FROM core_outbox.parcel, unnest(refs) AS id";
    assert_eq!(count(&client, doubled).await, 205 + 3 * 201);
    let taken: usize = take(&*store, "noop").await.iter().map(|batch| batch.messages.len()).sum();
    assert_eq!(taken, 205 + 3 * 201);
}

/// Nobody waits for somebody else's transaction for it.
#[tokio::test]
async fn a_number_that_an_open_transaction_has_drawn_is_passed_over() {
    let (database, client, store) = outbox().await;
    enqueue(&client, 1, "PENDING").await;
    let back = "SELECT setval('core_outbox.parcel_number', (SELECT max(number) FROM core_outbox.parcel), false)";
    let other = database.client().await;
    other.batch_execute("BEGIN").await.expect("begin");
    enqueue(&other, 1, "PENDING").await;
    client.batch_execute(back).await.expect("set back");
    enqueue(&client, 1, "PENDING").await;
    other.batch_execute("COMMIT").await.expect("commit");
    let taken: usize = take(&*store, "noop").await.iter().map(|batch| batch.messages.len()).sum();
    assert_eq!(taken, 3);
}

/// Fresh messages are taken in the order of their insertion, by the numbers of their parcels.
#[tokio::test]
async fn the_parcels_of_one_statement_are_numbered_in_the_order_of_insertion() {
    let (_database, client, _store) = outbox().await;
    enqueue(&client, 10_000, "PENDING").await;
    let parcels = "SELECT array_agg(lowest ORDER BY number) FROM core_outbox.parcel";
    let lowest: Vec<i64> = client.query_one(parcels, &[]).await.expect("parcels").get(0);
    assert!(lowest.len() > 100 && lowest.is_sorted(), "{lowest:?}");
}

/// No sequence ever comes to a number that a producer has made up, and nothing is moved towards it.
#[tokio::test]
async fn a_number_that_a_producer_made_up_keeps_no_relay_from_starting() {
    let (_database, client, store) = outbox().await;
    enqueue(&client, 1, "PENDING").await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, seq)
             VALUES ('s', 'e', 'noop', 't', '{}', 9223372036854775807)",
        )
        .await
        .expect("odd");
    assert!(!store.looks_restored().await.expect("a look"));
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    enqueue(&client, 1, "PENDING").await;
    let taken: usize = take(&*store, "noop").await.iter().map(|batch| batch.messages.len()).sum();
    assert_eq!(taken, 3);
}
