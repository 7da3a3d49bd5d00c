//! Content that cannot be read, among deliveries and parcels of one take, on PostgreSQL.

use crate::ledger_outbox::{count, enqueue, enqueue_unreadable, outbox, take};
use crate::taking::{all, wish};
use postroom_core::Take;

/// The take of deliveries fails because of one of them. What was swept up in the same round trip is
/// delivered all the same.
#[tokio::test]
async fn an_unreadable_delivery_does_not_keep_what_was_swept_up() {
    let (_database, client, store) = outbox().await;
    enqueue_unreadable(&client).await;
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

/// Retries that use up the bytes of a take leave room for fresh messages, which stay in their parcels.
#[tokio::test]
async fn large_retries_do_not_unpack_what_is_fresh() {
    let (_database, client, store) = outbox().await;
    let large = "INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload, status)
        SELECT 's', gen_random_uuid()::text, 'noop', 't', to_jsonb(repeat('x', 100000)), 'FAILED'
        FROM generate_series(1, 60)";
    client.batch_execute(large).await.expect("enqueued");
    enqueue(&client, 200, "PENDING").await;
    let quotas = all("noop");
    let take = Take { bytes: 500_000, ..wish(&*store, &quotas).await };
    let taken: Vec<_> = store.take(&take).await.expect("take");
    let messages: usize = taken.iter().map(|batch| batch.messages.len()).sum();
    assert!(messages > 200, "{messages} were taken");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.delivery").await, 60);
}
