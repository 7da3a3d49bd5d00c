//! An outbox on PostgreSQL, for tests that look into its ledger.

use crate::taking::{all, wish};
use postroom_core::{Batch, Store};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use tokio_postgres::Client;

/// Everything that the ledger holds for relays.
pub(crate) const LEFT: &str = "SELECT (SELECT count(*) FROM core_outbox.parcel)
    + (SELECT count(*) FROM core_outbox.claim) + (SELECT count(*) FROM core_outbox.delivery)
    + (SELECT count(*) FROM core_outbox.pending_edit)";

pub(crate) async fn outbox() -> (TestDatabase, Client, Arc<dyn Store>) {
    outbox_with(&OpenOptions::default()).await
}

pub(crate) async fn outbox_with(options: &OpenOptions) -> (TestDatabase, Client, Arc<dyn Store>) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    let store = postroom_store::open(database.url(), options).await.expect("store");
    (database, client, store)
}

/// So many messages, in one parcel or as deliveries by their status.
pub(crate) async fn enqueue(client: &Client, messages: i32, status: &str) {
    let sql = "INSERT INTO core_outbox.integration_outbox
                   (source_stream_id, source_event_id, integration_type, event_type, payload, status)
               SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}', $2::text
               FROM generate_series(1, $1::int)";
    client.execute(sql, &[&messages, &status]).await.expect("enqueued");
}

/// One failed message that is over 1 GB as text, which PostgreSQL refuses to make, and small by its delivery's
/// word. Its event id is `e`.
pub(crate) async fn enqueue_unreadable(client: &Client) {
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
}

pub(crate) async fn take(store: &dyn Store, lane: &str) -> Vec<Batch> {
    store.take(&wish(store, &all(lane)).await).await.expect("take")
}

pub(crate) async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a count").get(0)
}
