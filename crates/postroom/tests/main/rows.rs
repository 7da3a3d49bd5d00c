//! Enqueueing in a table that was there before.

use postroom::{EnqueueError, NewMessage, Outbox};
use postroom_store::layout::{Destination, Dialect};
use postroom_store::{Layout, MigrateOptions};
use postroom_testkit::{MariaDb, Postgres};
use serde_json::json;
use std::sync::Arc;

fn message() -> NewMessage {
    NewMessage::new("kafka:runs", "run.started")
        .event_id("0198c1f0-0000-7000-8000-000000000001")
        .stream("0198c1f0-0000-7000-8000-0000000000aa")
        .json(&json!({ "step": 1 }))
}

/// By sqlx as by tokio-postgres, whose test is the store's: both write the same row.
#[tokio::test]
async fn sqlx_enqueues_a_row_that_its_owner_reads() {
    let database = Postgres::shared().await.database().await;
    let layout = Layout::built_in("events", Dialect::Postgres).unwrap();
    let to = Some(Destination::One("kafka:runs".to_owned()));
    let layout = Some(Arc::new(Layout { to, ..layout }));
    let options = MigrateOptions { layout, ..MigrateOptions::default() };
    postroom_store::migrate_with(database.url(), &options).await.unwrap();
    let outbox = Outbox::of_table("outbox_events");
    let pool = sqlx::PgPool::connect(database.url()).await.unwrap();

    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, message()).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let first = outbox.enqueue(&mut tx, message()).await.unwrap();
    let again = outbox.enqueue(&mut tx, message()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((first.is_new(), again.is_new(), again.id()), (true, false, first.id()));
    let rows: Vec<(String, String, bool)> = sqlx::query_as(
        "SELECT event_id::text, payload::text, delivered_at IS NULL FROM outbox_events",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(rows, [(first.id().to_string(), r#"{"step": 1}"#.to_owned(), true)]);
}

/// On MariaDB and MySQL the library knows Postroom's own table alone.
#[tokio::test]
async fn where_layouts_are_not_known_rows_are_inserted_by_sql() {
    let database = MariaDb::shared().await.database().await;
    let pool = sqlx::MySqlPool::connect(database.url()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let refused = Outbox::of_table("outbox_events").enqueue(&mut tx, message()).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::OnlyOwnTable), "{refused}");
}
