//! Places two orders in a SQLite file, of which one is refused. Then run
//! `postroom run --database sqlite://shop.db` beside it to see the other's message delivered.

use anyhow::Result;
use place_order::{create_tables, place_order};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned());
    postroom_store::migrate(&format!("sqlite://{file}")).await?;
    let options = SqliteConnectOptions::new().filename(&file);
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    create_tables(&pool).await?;

    let order_id = format!("ord_{}", std::process::id());
    place_order(&pool, &order_id, "usr_1", 100).await?;
    println!("placed {order_id}: the order and its message are committed");
    if let Err(refused) = place_order(&pool, "ord_refused", "usr_1", 0).await {
        println!("refused ord_refused ({refused}): neither the order nor a message is there");
    }
    println!("now deliver it: postroom run --database sqlite://{file}");
    Ok(())
}
