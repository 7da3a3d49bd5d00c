//! MariaDB: durable, in a process of its own, which crashes.

use super::database::{DatabaseFault, Ended, INTEGRATION, Outbox, Producer, ROWS_LOCKED};
use super::half_open;
use super::relays::postroom;
use crate::{MariaDatabase, MariaDb, Proxy};
use anyhow::{Context as _, bail};
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, QueryBuilder};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What is committed survives a crash.
pub(super) const DURABLE: &[(&str, &str)] = &[("innodb-flush-log-at-trx-commit", "1")];

const INSERT: &str = "INSERT INTO integration_outbox \
     (source_stream_id, source_event_id, integration_type, event_type, payload) ";

const FAULTS: &[DatabaseFault] = &[
    DatabaseFault::Crash,
    DatabaseFault::KillConnections,
    DatabaseFault::HalfOpen,
    DatabaseFault::LockRows,
];

pub(super) async fn start(program: &Path) -> anyhow::Result<MariaDbOutbox> {
    let server = MariaDb::private(DURABLE).await?;
    let database = server.try_database().await?;
    let way = [Proxy::start(server.address()?)];
    let url = url(way[0].address(), database.name());
    postroom(program, &["migrate", "--database", &url])?;
    Ok(MariaDbOutbox { url, way, _database: database, server })
}

pub(super) fn url(address: SocketAddr, database: &str) -> String {
    format!("mysql://root@{address}/{database}")
}

pub(super) struct MariaDbOutbox {
    url: String,
    way: [Proxy; 1],
    _database: MariaDatabase,
    server: MariaDb,
}

#[async_trait]
impl Outbox for MariaDbOutbox {
    fn url(&self, _relay: usize) -> String {
        self.url.clone()
    }

    async fn producer(&self, _number: usize) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(MariaDbProducer::connect(&self.url).await?))
    }

    fn faults(&self) -> &'static [DatabaseFault] {
        FAULTS
    }

    async fn strike(&self, fault: DatabaseFault, time: Duration) -> anyhow::Result<()> {
        match fault {
            DatabaseFault::Crash => {
                self.server.stop().await?;
                tokio::time::sleep(time).await;
                self.server.start().await
            }
            DatabaseFault::KillConnections => kill_connections(&self.url).await,
            DatabaseFault::HalfOpen => {
                half_open::strike(&self.way).await;
                Ok(())
            }
            DatabaseFault::LockRows => lock_rows(&self.url, time).await,
            DatabaseFault::LockDatabase
            | DatabaseFault::PromoteStandby
            | DatabaseFault::KillNode => bail!("{fault:?} does not happen to MariaDB here"),
        }
    }

    async fn left(&self) -> anyhow::Result<i64> {
        left(&mut connect(&self.url).await?).await
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        present(&mut connect(&self.url).await?).await
    }
}

pub(super) async fn connect(url: &str) -> anyhow::Result<MySqlConnection> {
    MySqlConnection::connect(url).await.context("connecting")
}

pub(super) async fn left(connection: &mut MySqlConnection) -> anyhow::Result<i64> {
    let count = sqlx::query_scalar(
        "SELECT (SELECT COUNT(*) FROM outbox_delivery) + (SELECT COUNT(*) FROM outbox_parcel)",
    );
    Ok(count.fetch_one(connection).await?)
}

pub(super) async fn present(connection: &mut MySqlConnection) -> anyhow::Result<HashSet<String>> {
    let all = sqlx::query_scalar("SELECT source_event_id FROM integration_outbox");
    let all: Vec<String> = all.fetch_all(connection).await?;
    Ok(all.into_iter().collect())
}

/// Ends every other connection to the outbox, on this server.
pub(super) async fn kill_connections(url: &str) -> anyhow::Result<()> {
    let mut connection = connect(url).await?;
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

/// Locks messages that are still to be delivered, those that came last. What relays are writing at
/// the moment is left to them.
pub(super) async fn lock_rows(url: &str, time: Duration) -> anyhow::Result<()> {
    let mut connection = connect(url).await?;
    let begin = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN";
    sqlx::raw_sql(begin).execute(&mut connection).await?;
    let last = format!(
        "SELECT seq FROM outbox_delivery UNION SELECT seq FROM outbox_parcel \
         ORDER BY seq DESC LIMIT {ROWS_LOCKED}"
    );
    let last: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(last)).fetch_all(&mut connection).await?;
    if !last.is_empty() {
        let mut lock: QueryBuilder<MySql> =
            QueryBuilder::new("SELECT seq FROM integration_outbox WHERE seq IN (");
        let mut seqs = lock.separated(",");
        for seq in last {
            seqs.push_bind(seq);
        }
        lock.push(") FOR UPDATE SKIP LOCKED");
        lock.build().persistent(false).fetch_all(&mut connection).await?;
    }
    tokio::time::sleep(time).await;
    // Under Galera the transaction may be over: another node's write goes before a local lock.
    let _ = sqlx::raw_sql("ROLLBACK").execute(&mut connection).await;
    Ok(())
}

pub(super) struct MariaDbProducer {
    connection: MySqlConnection,
}

impl MariaDbProducer {
    pub(super) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self { connection: connect(url).await? })
    }
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
