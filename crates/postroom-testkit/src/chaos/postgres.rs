//! PostgreSQL: durable, in a process of its own, which crashes or is replaced by its standby.

use super::database::{DatabaseFault, Ended, INTEGRATION, Outbox, Producer, ROWS_LOCKED};
use super::half_open;
use super::relays::postroom;
use crate::{Postgres, Proxy, Standby};
use anyhow::{Context as _, bail};
use async_trait::async_trait;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

/// What is committed survives a crash.
const DURABLE: &[(&str, &str)] = &[("fsync", "on"), ("full_page_writes", "on")];

const INSERT: &str = "INSERT INTO core_outbox.integration_outbox \
     (source_stream_id, source_event_id, integration_type, event_type, payload) \
     SELECT 'chaos', event, $2, 'chaos.v1', to_jsonb(event) FROM unnest($1::text[]) AS event";

/// Locks messages that are still to be delivered, those that came last. What relays are writing at
/// the moment is left to them.
const LOCK: &str = "SELECT FROM core_outbox.integration_outbox WHERE id IN \
     (SELECT message_id FROM ( \
          (SELECT message_id, seq FROM core_outbox.delivery ORDER BY seq DESC LIMIT $1) UNION ALL \
          (SELECT unnest(refs), lowest FROM core_outbox.parcel ORDER BY lowest DESC LIMIT $1) \
      ) AS open ORDER BY seq DESC LIMIT $1) \
     FOR UPDATE SKIP LOCKED";

const FAULTS: &[DatabaseFault] = &[
    DatabaseFault::Crash,
    DatabaseFault::KillConnections,
    DatabaseFault::HalfOpen,
    DatabaseFault::LockRows,
    DatabaseFault::PromoteStandby,
];

pub(super) async fn start(program: &Path) -> anyhow::Result<PostgresOutbox> {
    let primary = Postgres::private(DURABLE).await?;
    connect(primary.url()).await?.batch_execute("CREATE DATABASE chaos").await?;
    let way = [Proxy::start(primary.address()?)];
    let url = format!("postgres://postgres@{}/chaos", way[0].address());
    postroom(program, &["migrate", "--database", &url])?;
    Ok(PostgresOutbox { url, way, servers: Mutex::new(Servers { primary, standby: None }) })
}

pub(super) struct PostgresOutbox {
    url: String,
    /// Leads everybody to the primary.
    way: [Proxy; 1],
    servers: Mutex<Servers>,
}

struct Servers {
    primary: Postgres,
    /// Only while it is about to be promoted.
    standby: Option<Standby>,
}

impl PostgresOutbox {
    async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        let client = connect(&self.url).await?;
        Ok(client.query_one(sql, &[]).await?.try_get(0)?)
    }

    async fn kill_connections(&self) -> anyhow::Result<()> {
        let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.count(others).await.map(drop)
    }

    async fn lock_rows(&self, time: Duration) -> anyhow::Result<()> {
        let client = connect(&self.url).await?;
        client.batch_execute("BEGIN").await?;
        client.execute(LOCK, &[&i64::try_from(ROWS_LOCKED)?]).await?;
        tokio::time::sleep(time).await;
        Ok(client.batch_execute("ROLLBACK").await?)
    }
}

#[async_trait]
impl Outbox for PostgresOutbox {
    fn url(&self, _relay: usize) -> String {
        self.url.clone()
    }

    async fn producer(&self, _number: usize) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(PostgresProducer { client: connect(&self.url).await? }))
    }

    fn faults(&self) -> &'static [DatabaseFault] {
        FAULTS
    }

    async fn prepare(&self, fault: DatabaseFault) -> anyhow::Result<()> {
        if fault == DatabaseFault::PromoteStandby {
            let mut servers = self.servers.lock().await;
            let standby = Standby::of(&servers.primary).await?;
            standby.make_synchronous(&servers.primary).await?;
            servers.standby = Some(standby);
        }
        Ok(())
    }

    async fn strike(&self, fault: DatabaseFault, time: Duration) -> anyhow::Result<()> {
        let mut servers = self.servers.lock().await;
        match fault {
            DatabaseFault::Crash => {
                servers.primary.stop().await?;
                tokio::time::sleep(time).await;
                servers.primary.start().await
            }
            DatabaseFault::KillConnections => self.kill_connections().await,
            DatabaseFault::HalfOpen => {
                half_open::strike(&self.way).await;
                Ok(())
            }
            DatabaseFault::LockRows => self.lock_rows(time).await,
            DatabaseFault::PromoteStandby => {
                let standby = servers.standby.take().context("no standby was prepared")?;
                servers.primary.stop().await?;
                tokio::time::sleep(time).await;
                servers.primary = standby.promote().await?;
                self.way[0].lead_to(servers.primary.address()?);
                Ok(())
            }
            DatabaseFault::LockDatabase | DatabaseFault::KillNode => {
                bail!("{fault:?} does not happen to PostgreSQL here")
            }
        }
    }

    async fn left(&self) -> anyhow::Result<i64> {
        self.count(
            "SELECT (SELECT count(*) FROM core_outbox.delivery) \
                    + (SELECT coalesce(sum(cardinality(refs)), 0)::bigint FROM core_outbox.parcel)",
        )
        .await
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        let client = connect(&self.url).await?;
        let all = "SELECT source_event_id FROM core_outbox.integration_outbox";
        let rows = client.query(all, &[]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
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
