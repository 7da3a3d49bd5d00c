//! The drivers whose transactions can carry a message.

use crate::EnqueueError;
use async_trait::async_trait;
use postroom_core::{Enqueued, NewMessage};

#[cfg(any(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
#[macro_use]
mod sqlx_binds;
#[cfg(feature = "sqlx-mysql")]
mod sqlx_mysql;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_postgres;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

/// A transaction (or a connection inside one) of a driver Postroom knows. Implemented for
/// `sqlx::Transaction` and its connection on PostgreSQL, MariaDB/MySQL and SQLite, and for
/// `tokio_postgres::Transaction`; other drivers use the SQL contract.
#[async_trait]
pub trait OutboxTransaction: Send + sealed::Sealed {
    /// Writes a message that has been checked.
    #[doc(hidden)]
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError>;

    /// Writes it as a row of another table than Postroom's own.
    #[doc(hidden)]
    async fn insert_row(
        &mut self,
        table: &str,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError>;
}

mod sealed {
    pub trait Sealed {}
}

/// The same statement for both PostgreSQL drivers. No conflict target: a table that still has
/// the narrower fence of an older schema works too.
#[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
const INSERT_POSTGRES: &str = include_str!("driver/insert_postgres.sql");
#[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
const FIND_POSTGRES: &str = include_str!("driver/find_postgres.sql");
#[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
const ENQUEUE_ROW: &str = include_str!("driver/enqueue_row.sql");

/// The statement that writes a row of a table by the ledger that it has.
#[cfg(any(feature = "sqlx-postgres", feature = "tokio-postgres"))]
fn enqueue_row(table: &str) -> String {
    ENQUEUE_ROW.replace("{ledger}", &postroom_core::ledger_schema(table))
}
