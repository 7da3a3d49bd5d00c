//! A database of its own for one test.

use crate::url::with_database;
use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use std::time::Duration;
use uuid::Uuid;

/// How long the list of transactions must be left alone to be true again.
const TRANSACTIONS_REFRESHED: Duration = Duration::from_millis(150);

/// An empty database on MariaDB that is dropped with the value, whoever is still connected to
/// it.
#[derive(Debug)]
pub struct MariaDatabase {
    server_url: String,
    url: String,
    name: String,
}

impl MariaDatabase {
    pub(crate) async fn create(server_url: &str) -> anyhow::Result<Self> {
        let name = format!("postroom_{}", Uuid::new_v4().simple());
        let url = with_database(server_url, &name)?;
        let mut connection = connect(server_url).await?;
        // Not what Postroom's own tables use: they say themselves what they need.
        let create = format!("CREATE DATABASE {name} CHARACTER SET latin1");
        sqlx::raw_sql(AssertSqlSafe(create))
            .execute(&mut connection)
            .await
            .context("CREATE DATABASE: the user needs the right to make databases")?;
        Ok(Self { server_url: server_url.to_owned(), url, name })
    }

    /// The URL that applications connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of its own, closed when the value is dropped.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn connection(&self) -> MySqlConnection {
        connect(&self.url).await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The connections to this database that wait for a lock, by the number that KILL takes.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn lock_waits(&self) -> Vec<u64> {
        // The server shows what it knew when it was last asked, until nobody has asked for a
        // tenth of a second.
        tokio::time::sleep(TRANSACTIONS_REFRESHED).await;
        sqlx::query_scalar(
            "SELECT t.trx_mysql_thread_id FROM information_schema.INNODB_TRX AS t \
             JOIN information_schema.PROCESSLIST AS p ON p.ID = t.trx_mysql_thread_id \
             WHERE t.trx_state = 'LOCK WAIT' AND p.DB = DATABASE()",
        )
        .fetch_all(&mut self.connection().await)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for MariaDatabase {
    fn drop(&mut self) {
        let (server_url, name) = (self.server_url.clone(), self.name.clone());
        // A thread with a runtime of its own, since a destructor cannot await. It is waited for,
        // so that a process that ends right after its last test leaves nothing behind.
        let dropping = std::thread::spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(drop_database(&server_url, &name))
        });
        // Best effort: the server may be stopped, or gone.
        let _ = dropping.join();
    }
}

/// A transaction that is still open would hold up the drop, so its connection is ended first.
async fn drop_database(server_url: &str, name: &str) -> anyhow::Result<()> {
    let mut connection = connect(server_url).await?;
    let connected: Vec<i64> =
        sqlx::query_scalar("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = ?")
            .bind(name)
            .fetch_all(&mut connection)
            .await?;
    for id in connected {
        // It may have ended by itself.
        let kill = AssertSqlSafe(format!("KILL {id}"));
        let _ = sqlx::raw_sql(kill).execute(&mut connection).await;
    }
    let drop = AssertSqlSafe(format!("SET lock_wait_timeout = 5; DROP DATABASE {name}"));
    sqlx::raw_sql(drop).execute(&mut connection).await?;
    Ok(())
}

async fn connect(url: &str) -> anyhow::Result<MySqlConnection> {
    MySqlConnection::connect(url).await.context("connecting to MariaDB; is the server running?")
}
