//! The application of the demo: it writes an order and its message in one transaction.

use crate::failure::Failure;
use anyhow::Context;
use postroom::{NewMessage, enqueue};
use sqlx::Connection;
use sqlx::mysql::MySqlConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use std::time::Duration;

/// The shop's connection to the database that also holds its outbox.
pub(super) enum Shop {
    Sqlite(SqliteConnection),
    MySql(MySqlConnection),
    Postgres(tokio_postgres::Client),
}

const ORDERS: &str = "CREATE TABLE orders (id varchar(80) PRIMARY KEY, total bigint NOT NULL)";
const TEMPORARY_ORDERS: &str =
    "CREATE TEMPORARY TABLE orders (id varchar(80) PRIMARY KEY, total bigint NOT NULL)";

/// What becomes of an order's transaction.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Ending {
    Commit,
    RollBack,
}

impl Shop {
    /// Connects and makes the table of orders. In a database that was only `lent` to the demo
    /// that table is temporary: it is given back as it was, but for the messages.
    pub(super) async fn open(url: &str, lent: bool) -> Result<Self, Failure> {
        let table = if lent { TEMPORARY_ORDERS } else { ORDERS };
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            let mut connection = MySqlConnection::connect(url)
                .await
                .context("the shop cannot connect to MariaDB or MySQL")?;
            sqlx::query(table)
                .execute(&mut connection)
                .await
                .context("the shop cannot make its table")?;
            return Ok(Self::MySql(connection));
        }
        let Some(path) = crate::commands::outbox::sqlite_path(url) else {
            let client = postroom_store::postgres::connect(url).await?;
            client.batch_execute(table).await.context("the shop cannot make its table")?;
            return Ok(Self::Postgres(client));
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(30));
        let mut connection = SqliteConnection::connect_with(&options)
            .await
            .context("the shop cannot open its database")?;
        sqlx::query(table)
            .execute(&mut connection)
            .await
            .context("the shop cannot make its table")?;
        Ok(Self::Sqlite(connection))
    }

    /// Places an order: the row and the message, both or neither.
    pub(super) async fn place(
        &mut self,
        order: &str,
        total: i64,
        message: NewMessage,
        ending: Ending,
    ) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(connection) => {
                let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
                sqlx::query("INSERT INTO orders (id, total) VALUES (?, ?)")
                    .bind(order)
                    .bind(total)
                    .execute(&mut *tx)
                    .await?;
                enqueue(&mut tx, message).await?;
                match ending {
                    Ending::Commit => tx.commit().await?,
                    Ending::RollBack => tx.rollback().await?,
                }
            }
            Self::MySql(connection) => {
                let mut tx = connection.begin().await?;
                sqlx::query("INSERT INTO orders (id, total) VALUES (?, ?)")
                    .bind(order)
                    .bind(total)
                    .execute(&mut *tx)
                    .await?;
                enqueue(&mut tx, message).await?;
                match ending {
                    Ending::Commit => tx.commit().await?,
                    Ending::RollBack => tx.rollback().await?,
                }
            }
            Self::Postgres(client) => {
                let mut tx = client.transaction().await?;
                tx.execute("INSERT INTO orders (id, total) VALUES ($1, $2)", &[&order, &total])
                    .await?;
                enqueue(&mut tx, message).await?;
                match ending {
                    Ending::Commit => tx.commit().await?,
                    Ending::RollBack => tx.rollback().await?,
                }
            }
        }
        Ok(())
    }
}
