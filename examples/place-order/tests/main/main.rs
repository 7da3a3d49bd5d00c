//! The law of the kata: an order and its message exist together or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use place_order::{create_tables, place_order};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

async fn shop(folder: &tempfile::TempDir) -> SqlitePool {
    let file = folder.path().join("shop.db");
    postroom_store::migrate(&format!("sqlite://{}", file.display())).await.unwrap();
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file)).await.unwrap();
    create_tables(&pool).await.unwrap();
    pool
}

async fn count(pool: &SqlitePool, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn commit_keeps_the_order_and_its_message() {
    let folder = tempfile::tempdir().unwrap();
    let pool = shop(&folder).await;
    place_order(&pool, "ord_1", "usr_1", 100).await.unwrap();
    assert_eq!(count(&pool, "orders").await, 1);
    let (event_type, stream, total, status): (String, String, i64, String) = sqlx::query_as(
        "SELECT event_type, source_stream_id, payload ->> '$.total', status FROM outbox_messages",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(
        (event_type.as_str(), stream.as_str(), total, status.as_str()),
        ("order.created.v1", "ord_1", 100, "PENDING")
    );
}

#[tokio::test]
async fn rollback_keeps_neither() {
    let folder = tempfile::tempdir().unwrap();
    let pool = shop(&folder).await;
    place_order(&pool, "ord_1", "usr_1", 0).await.unwrap_err();
    assert_eq!(count(&pool, "orders").await, 0);
    assert_eq!(count(&pool, "integration_outbox").await, 0);
    assert_eq!(count(&pool, "outbox_parcel").await, 0);
}

#[tokio::test]
async fn an_order_that_exists_brings_no_second_message() {
    let folder = tempfile::tempdir().unwrap();
    let pool = shop(&folder).await;
    place_order(&pool, "ord_1", "usr_1", 100).await.unwrap();
    place_order(&pool, "ord_1", "usr_1", 100).await.unwrap_err();
    assert_eq!(count(&pool, "integration_outbox").await, 1);
}
