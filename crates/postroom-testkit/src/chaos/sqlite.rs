//! SQLite: a file that several processes share.

use super::database::{DatabaseFault, Ended, INTEGRATION, Outbox, Producer};
use super::relays::postroom;
use anyhow::{Context as _, bail};
use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Row as _};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// How long a producer waits for other writers.
const BUSY_WAIT: Duration = Duration::from_secs(10);

const INSERT: &str = "INSERT INTO integration_outbox \
     (source_stream_id, source_event_id, integration_type, event_type, payload) \
     VALUES ('chaos', ?1, ?2, 'chaos.v1', 'null')";

pub(super) fn start(program: &Path) -> anyhow::Result<SqliteOutbox> {
    let folder = tempfile::tempdir().context("a folder for the outbox")?;
    let outbox = SqliteOutbox { folder };
    postroom(program, &["migrate", "--database", &outbox.url(0)])?;
    Ok(outbox)
}

pub(super) struct SqliteOutbox {
    folder: TempDir,
}

impl SqliteOutbox {
    async fn connect(&self) -> anyhow::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("outbox.db"))
            .busy_timeout(BUSY_WAIT);
        options.connect().await.context("opening the outbox")
    }
}

#[async_trait]
impl Outbox for SqliteOutbox {
    fn url(&self, _relay: usize) -> String {
        format!("sqlite://{}", self.folder.path().join("outbox.db").display())
    }

    async fn producer(&self, _number: usize) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(SqliteProducer { connection: self.connect().await? }))
    }

    fn faults(&self) -> &'static [DatabaseFault] {
        &[DatabaseFault::LockDatabase]
    }

    async fn strike(&self, fault: DatabaseFault, time: Duration) -> anyhow::Result<()> {
        match fault {
            DatabaseFault::LockDatabase => {
                let mut connection = self.connect().await?;
                sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut connection).await?;
                tokio::time::sleep(time).await;
                sqlx::raw_sql("ROLLBACK").execute(&mut connection).await?;
                Ok(())
            }
            DatabaseFault::Crash
            | DatabaseFault::KillConnections
            | DatabaseFault::HalfOpen
            | DatabaseFault::LockRows
            | DatabaseFault::PromoteStandby
            | DatabaseFault::KillNode => bail!("{fault:?} does not happen to SQLite"),
        }
    }

    async fn left(&self) -> anyhow::Result<i64> {
        let mut connection = self.connect().await?;
        let count = sqlx::query(
            "SELECT (SELECT count(*) FROM outbox_delivery) + (SELECT count(*) FROM outbox_parcel)",
        );
        Ok(count.fetch_one(&mut connection).await?.try_get(0)?)
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        let mut connection = self.connect().await?;
        let all = sqlx::query("SELECT source_event_id FROM integration_outbox");
        let rows = all.fetch_all(&mut connection).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

struct SqliteProducer {
    connection: SqliteConnection,
}

impl SqliteProducer {
    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(sql).execute(&mut self.connection).await.map(drop)
    }

    async fn insert(&mut self, event_ids: &[String]) -> Result<(), sqlx::Error> {
        // At its beginning: a transaction that first reads may find that it cannot write.
        self.run("BEGIN IMMEDIATE").await?;
        for event_id in event_ids {
            let insert = sqlx::query(INSERT).bind(event_id).bind(INTEGRATION);
            insert.execute(&mut self.connection).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Producer for SqliteProducer {
    async fn transact(&mut self, event_ids: &[String], commit: bool) -> Ended {
        if self.insert(event_ids).await.is_err() || !commit {
            // Nothing to roll back where it did not begin.
            let _ = self.run("ROLLBACK").await;
            return Ended::Nothing;
        }
        match self.run("COMMIT").await {
            Ok(()) => Ended::Committed,
            // The transaction is still open: nothing was committed.
            Err(_) if self.run("ROLLBACK").await.is_ok() => Ended::Nothing,
            Err(_) => Ended::Unknown,
        }
    }
}
