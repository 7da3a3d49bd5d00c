//! Placing an order, and saying so: both commit, or neither does.

use anyhow::{Result, ensure};
use postroom::{NewMessage, enqueue};
use sqlx::{Sqlite, SqlitePool, Transaction};

/// The application's own table.
pub async fn create_tables(pool: &SqlitePool) -> Result<()> {
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, total INTEGER NOT NULL)")
        .execute(pool)
        .await?;
    Ok(())
}

/// Places an order for `user_id` and returns its id.
///
/// The order and its message are written in one transaction. An error on the way drops the
/// transaction, and with it both.
pub async fn place_order(
    pool: &SqlitePool,
    order_id: &str,
    user_id: &str,
    total: i64,
) -> Result<()> {
    let mut tx = pool.begin().await?;
    insert_order(&mut tx, order_id, user_id, total).await?;
    let message = NewMessage::new("stdout", "order.created.v1")
        .stream(order_id)
        .user(user_id)
        .source("shop")
        .json(&serde_json::json!({ "orderId": order_id, "userId": user_id, "total": total }));
    enqueue(&mut tx, message).await?;
    // A rule that is checked late: by now both rows are written, and neither may stay.
    ensure!(total > 0, "an order needs a positive total, this one has {total}");
    tx.commit().await?;
    Ok(())
}

async fn insert_order(
    tx: &mut Transaction<'_, Sqlite>,
    order_id: &str,
    user_id: &str,
    total: i64,
) -> Result<()> {
    sqlx::query("INSERT INTO orders (id, user_id, total) VALUES ($1, $2, $3)")
        .bind(order_id)
        .bind(user_id)
        .bind(total)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
