//! Enqueue outbox messages inside your own transaction; Postroom delivers what you commit.
//!
//! ```no_run
//! # #[cfg(feature = "sqlx-postgres")]
//! # async fn place_order(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use postroom::{NewMessage, enqueue};
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("INSERT INTO orders (id, total) VALUES ($1, $2)")
//!     .bind("ord_1").bind(100).execute(&mut *tx).await?;
//! enqueue(&mut tx, NewMessage::new("webhook:partnerX", "order.created.v1")
//!     .stream("ord_1")
//!     .json(&serde_json::json!({ "orderId": "ord_1", "total": 100 }))).await?;
//! tx.commit().await?; // both, or neither
//! # Ok(()) }
//! ```
//!
//! Choose the driver by feature: `sqlx-postgres`, `sqlx-mysql`, `sqlx-sqlite` or
//! `tokio-postgres`. With the feature `opentelemetry`, the current W3C trace context is captured
//! into the headers.

mod driver;
mod enqueue;
mod error;
mod trace;

pub use driver::OutboxTransaction;
pub use enqueue::{Outbox, enqueue, enqueue_all};
pub use error::EnqueueError;
pub use postroom_core::{
    Enqueued, Field, JsonFault, Limits, MessageError, MessageId, MessageIdError, NewMessage,
};

/// The Rust of the documentation's pages, compiled as doctests.
#[cfg(all(
    doctest,
    feature = "sqlx-mysql",
    feature = "sqlx-postgres",
    feature = "sqlx-sqlite",
    feature = "tokio-postgres"
))]
mod documentation {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
}
