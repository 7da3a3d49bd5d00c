//! PostgreSQL: durable, in a process of its own, which crashes.

use super::database::{Ended, INTEGRATION, Outbox, Producer, Server};
use super::relays::postroom;
use crate::{Postgres, TestDatabase};
use anyhow::Context as _;
use async_trait::async_trait;
use std::collections::HashSet;
use std::path::Path;
use tokio_postgres::{Client, NoTls};

/// What is committed survives a crash.
const DURABLE: &[(&str, &str)] = &[("fsync", "on"), ("full_page_writes", "on")];

const INSERT: &str = "INSERT INTO core_outbox.integration_outbox \
     (source_stream_id, source_event_id, integration_type, event_type, payload) \
     SELECT 'chaos', event, $2, 'chaos.v1', to_jsonb(event) FROM unnest($1::text[]) AS event";

pub(super) async fn start(program: &Path) -> anyhow::Result<PostgresOutbox> {
    let server = Postgres::private(DURABLE).await?;
    let database = server.try_database().await?;
    postroom(program, &["migrate", "--database", database.url()])?;
    Ok(PostgresOutbox { database, server })
}

pub(super) struct PostgresOutbox {
    database: TestDatabase,
    server: Postgres,
}

impl PostgresOutbox {
    async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        let client = connect(self.database.url()).await?;
        Ok(client.query_one(sql, &[]).await?.try_get(0)?)
    }
}

#[async_trait]
impl Outbox for PostgresOutbox {
    fn url(&self) -> String {
        self.database.url().to_owned()
    }

    async fn producer(&self) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(PostgresProducer { client: connect(self.database.url()).await? }))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn left(&self) -> anyhow::Result<i64> {
        self.count("SELECT count(*) FROM core_outbox.delivery").await
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        let client = connect(self.database.url()).await?;
        let all = "SELECT source_event_id FROM core_outbox.integration_outbox";
        let rows = client.query(all, &[]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}

#[async_trait]
impl Server for PostgresOutbox {
    async fn crash(&self) -> anyhow::Result<()> {
        self.server.stop().await
    }

    async fn restart(&self) -> anyhow::Result<()> {
        self.server.start().await
    }

    async fn kill_connections(&self) -> anyhow::Result<()> {
        let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.count(others).await.map(drop)
    }
}

struct PostgresProducer {
    client: Client,
}

#[async_trait]
impl Producer for PostgresProducer {
    async fn transact(&mut self, event_ids: &[String], commit: bool) -> Ended {
        let Ok(tx) = self.client.transaction().await else { return Ended::Nothing };
        if tx.execute(INSERT, &[&event_ids, &INTEGRATION]).await.is_err() {
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

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("connecting")?;
    // It ends when the client is dropped; what goes wrong before, the client reports.
    tokio::spawn(connection);
    Ok(client)
}
