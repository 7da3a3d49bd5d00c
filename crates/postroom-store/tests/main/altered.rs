//! A table that someone has altered under the relay's feet.

use postroom_core::{Admin as _, StoreErrorKind};
use postroom_store::OpenOptions;
use postroom_store::postgres::PgStore;
use postroom_testkit::Postgres;
use uuid::Uuid;

#[tokio::test]
async fn a_column_of_another_type_is_a_refusal_and_no_outage() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    let store = PgStore::new(database.url(), &OpenOptions::default()).expect("a store");
    let insert = "INSERT INTO core_outbox.integration_outbox
                      (source_stream_id, source_event_id, integration_type, event_type, payload)
                  VALUES ('s', 'e', 'noop', 't', '{}') RETURNING id";
    let id: Uuid = client.query_one(insert, &[]).await.expect("inserted").get(0);
    let id = &id.into();
    store.find(id).await.expect("readable").expect("there");

    client
        .batch_execute(
            "CREATE TABLE kept AS SELECT * FROM core_outbox.messages;
             ALTER TABLE kept ALTER COLUMN schema_version TYPE text;
             DROP VIEW core_outbox.messages;
             CREATE VIEW core_outbox.messages AS SELECT * FROM kept",
        )
        .await
        .expect("altered");
    let error = store.find(id).await.expect_err("a text is no schema version");
    // To wait for the database would be to wait for ever.
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error:?}");
}
