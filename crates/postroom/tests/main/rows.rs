//! Enqueueing in a table that was there before.

use postroom::{NewMessage, Outbox};
use postroom_store::layout::{Destination, Dialect};
use postroom_store::{Layout, MigrateOptions};
use postroom_testkit::{MariaDatabase, MariaDb, MySql, Postgres};
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

#[tokio::test]
async fn a_row_of_an_adopted_table_is_enqueued_on_mariadb() {
    enqueued_as_a_row(MariaDb::shared().await.database().await).await;
}

#[tokio::test]
async fn a_row_of_an_adopted_table_is_enqueued_on_mysql() {
    enqueued_as_a_row(MySql::shared().await.database().await).await;
}

async fn enqueued_as_a_row(database: MariaDatabase) {
    let mut layout = Layout::built_in("events", Dialect::Mysql).unwrap();
    layout.to = Some(Destination::One("kafka:runs".to_owned()));
    let options = MigrateOptions { layout: Some(Arc::new(layout.clone())), ..Default::default() };
    postroom_store::migrate_with(database.url(), &options).await.unwrap();
    let pool = sqlx::MySqlPool::connect(database.url()).await.unwrap();
    // Named as in the layout, or with its database.
    for (table, message) in [
        ("outbox_events".to_owned(), message()),
        (
            format!("`{}`.outbox_events", database.name()),
            message().event_id("0198c1f0-0000-7000-8000-000000000002"),
        ),
    ] {
        let outbox = Outbox::of_table(&table);
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue(&mut tx, message.clone()).await.unwrap();
        tx.rollback().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        let first = outbox.enqueue(&mut tx, message.clone()).await.unwrap();
        let again = outbox.enqueue(&mut tx, message.clone()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!((first.is_new(), again.is_new(), again.id()), (true, false, first.id()));
        let row: (String, bool) = sqlx::query_as(
            "SELECT event_id, delivered_at IS NULL FROM outbox_events WHERE event_id = ?",
        )
        .bind(first.id().to_string())
        .fetch_one(&pool)
        .await
        .unwrap();
        assert_eq!(row, (first.id().to_string(), true));
    }
    let elsewhere = NewMessage::new("kafka:other", "run.started").stream("r").raw("{}");
    let mut connection = pool.acquire().await.unwrap();
    let outbox = Outbox::of_table("outbox_events");
    let refused = outbox.enqueue(&mut *connection, elsewhere).await.unwrap_err();
    let why = std::error::Error::source(&refused).unwrap().to_string();
    assert!(why.contains("sends this row to kafka:runs"), "{why}");
    let rows: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM outbox_events").fetch_one(&pool).await.unwrap();
    assert_eq!(rows, 2, "what was refused left no row");
    postroom_store::remove_ledger(database.url(), &layout).await.unwrap();
}
