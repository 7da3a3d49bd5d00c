//! MariaDB: durable, in a process of its own, which crashes.

use super::database::{Ended, INTEGRATION, Outbox, Producer, Server};
use super::relays::postroom;
use crate::{MariaDatabase, MariaDb};
use anyhow::Context as _;
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, QueryBuilder};
use std::collections::HashSet;
use std::path::Path;

/// What is committed survives a crash.
const DURABLE: &[(&str, &str)] = &[("innodb-flush-log-at-trx-commit", "1")];

const INSERT: &str = "INSERT INTO integration_outbox \
     (source_stream_id, source_event_id, integration_type, event_type, payload) ";

pub(super) async fn start(program: &Path) -> anyhow::Result<MariaDbOutbox> {
    let server = MariaDb::private(DURABLE).await?;
    let database = server.try_database().await?;
    postroom(program, &["migrate", "--database", database.url()])?;
    Ok(MariaDbOutbox { database, server })
}

pub(super) struct MariaDbOutbox {
    database: MariaDatabase,
    server: MariaDb,
}

impl MariaDbOutbox {
    async fn connect(&self) -> anyhow::Result<MySqlConnection> {
        MySqlConnection::connect(self.database.url()).await.context("connecting")
    }
}

#[async_trait]
impl Outbox for MariaDbOutbox {
    fn url(&self) -> String {
        self.database.url().to_owned()
    }

    async fn producer(&self) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(MariaDbProducer { connection: self.connect().await? }))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn left(&self) -> anyhow::Result<i64> {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM outbox_delivery");
        Ok(count.fetch_one(&mut self.connect().await?).await?)
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        let all = sqlx::query_scalar("SELECT source_event_id FROM integration_outbox");
        let all: Vec<String> = all.fetch_all(&mut self.connect().await?).await?;
        Ok(all.into_iter().collect())
    }
}

#[async_trait]
impl Server for MariaDbOutbox {
    async fn crash(&self) -> anyhow::Result<()> {
        self.server.stop().await
    }

    async fn restart(&self) -> anyhow::Result<()> {
        self.server.start().await
    }

    async fn kill_connections(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        let others: Vec<i64> = sqlx::query_scalar(
            "SELECT ID FROM information_schema.PROCESSLIST \
             WHERE DB = DATABASE() AND ID <> CONNECTION_ID()",
        )
        .fetch_all(&mut connection)
        .await?;
        for id in others {
            // It may have ended by itself.
            let kill = AssertSqlSafe(format!("KILL {id}"));
            let _ = sqlx::raw_sql(kill).execute(&mut connection).await;
        }
        Ok(())
    }
}

struct MariaDbProducer {
    connection: MySqlConnection,
}

#[async_trait]
impl Producer for MariaDbProducer {
    async fn transact(&mut self, event_ids: &[String], commit: bool) -> Ended {
        let Ok(mut tx) = self.connection.begin().await else { return Ended::Nothing };
        let mut insert: QueryBuilder<MySql> = QueryBuilder::new(INSERT);
        insert.push_values(event_ids, |mut row, event_id| {
            row.push("'chaos'")
                .push_bind(event_id)
                .push_bind(INTEGRATION)
                .push("'chaos.v1'")
                .push("'null'");
        });
        if insert.build().persistent(false).execute(&mut *tx).await.is_err() {
            return Ended::Nothing;
        }
        if !commit {
            // Whether or not the word arrives: nobody will ever commit it.
            let _ = tx.rollback().await;
            return Ended::Nothing;
        }
        match tx.commit().await {
            Ok(()) => Ended::Committed,
            Err(_) => Ended::Unknown,
        }
    }
}
