//! Content that cannot be read, among deliveries and parcels of one take, on PostgreSQL.

use crate::ledger_outbox::{count, enqueue, outbox, take};

/// The take of deliveries fails because of one of them. What was swept up in the same round trip is
/// delivered all the same.
#[tokio::test]
async fn an_unreadable_delivery_does_not_keep_what_was_swept_up() {
    let (_database, client, store) = outbox().await;
    // Over 1 GB as text, which PostgreSQL refuses to make, and small by its delivery's word.
    let numbers = format!("[{}]", vec!["1e131071"; 8_200].join(","));
    client
        .execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, status)
             VALUES ('s', 'e', 'noop', 't', $1::text::jsonb, 'FAILED')",
            &[&numbers],
        )
        .await
        .expect("enqueued");
    client
        .batch_execute("UPDATE core_outbox.delivery SET bytes = 100")
        .await
        .expect("made to look small");
    enqueue(&client, 3, "PENDING").await;
    // As if they had committed after younger ones were taken.
    client
        .batch_execute(
            "INSERT INTO core_outbox.lane_cursor (lane, mark)
             SELECT lane, max(number) FROM core_outbox.parcel GROUP BY lane",
        )
        .await
        .expect("marked");
    let taken = take(&*store, "noop").await;
    let of_parcels = taken.iter().flat_map(|batch| &batch.messages);
    assert_eq!(of_parcels.filter(|one| one.message.event_id != "e").count(), 3);
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.parcel").await, 1);
}
