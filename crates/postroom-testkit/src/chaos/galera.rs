//! Galera: three MariaDB servers that are one database, each with relays and producers of its own.

use super::database::{DatabaseFault, Outbox, Producer};
use super::half_open;
use super::mariadb::{self, DURABLE, MariaDbProducer};
use super::relays::postroom;
use crate::{Galera, MariaDatabase, Proxy};
use anyhow::bail;
use async_trait::async_trait;
use sqlx::MySqlConnection;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const FAULTS: &[DatabaseFault] = &[
    DatabaseFault::KillConnections,
    DatabaseFault::HalfOpen,
    DatabaseFault::LockRows,
    DatabaseFault::KillNode,
];

pub(super) async fn start(program: &Path) -> anyhow::Result<GaleraOutbox> {
    let cluster = Galera::start(DURABLE).await?;
    let database = cluster.try_database().await?;
    let ways: Vec<Proxy> =
        (0..Galera::NODES).map(|node| Proxy::start(cluster.address(node))).collect();
    let outbox = GaleraOutbox { database, ways, cluster, killed: AtomicUsize::new(0) };
    postroom(program, &["migrate", "--database", &outbox.url(0)])?;
    Ok(outbox)
}

pub(super) struct GaleraOutbox {
    database: MariaDatabase,
    /// One to each node; while that is away, to the next, as a load balancer has it.
    ways: Vec<Proxy>,
    cluster: Galera,
    /// How many nodes were killed so far: each has its turn.
    killed: AtomicUsize,
}

impl GaleraOutbox {
    fn through(&self, way: usize) -> String {
        mariadb::url(self.ways[way % Galera::NODES].address(), self.database.name())
    }

    fn at(&self, node: usize) -> String {
        mariadb::url(self.cluster.address(node), self.database.name())
    }

    /// A connection that sees what other nodes have committed by now.
    async fn reader(&self) -> anyhow::Result<MySqlConnection> {
        let mut connection = mariadb::connect(&self.through(0)).await?;
        sqlx::raw_sql("SET SESSION wsrep_sync_wait = 1").execute(&mut connection).await?;
        Ok(connection)
    }

    async fn kill_node(&self, time: Duration) -> anyhow::Result<()> {
        let node = self.killed.fetch_add(1, Ordering::AcqRel) % Galera::NODES;
        self.cluster.kill(node).await?;
        self.ways[node].lead_to(self.cluster.address((node + 1) % Galera::NODES));
        tokio::time::sleep(time).await;
        self.cluster.restart(node).await?;
        self.ways[node].lead_to(self.cluster.address(node));
        Ok(())
    }
}

#[async_trait]
impl Outbox for GaleraOutbox {
    fn url(&self, relay: usize) -> String {
        self.through(relay)
    }

    async fn producer(&self, number: usize) -> anyhow::Result<Box<dyn Producer>> {
        Ok(Box::new(MariaDbProducer::connect(&self.through(number)).await?))
    }

    fn faults(&self) -> &'static [DatabaseFault] {
        FAULTS
    }

    async fn strike(&self, fault: DatabaseFault, time: Duration) -> anyhow::Result<()> {
        match fault {
            DatabaseFault::KillConnections => {
                for node in 0..Galera::NODES {
                    mariadb::kill_connections(&self.at(node)).await?;
                }
                Ok(())
            }
            DatabaseFault::HalfOpen => {
                half_open::strike(&self.ways).await;
                Ok(())
            }
            DatabaseFault::LockRows => mariadb::lock_rows(&self.through(0), time).await,
            DatabaseFault::KillNode => self.kill_node(time).await,
            DatabaseFault::Crash | DatabaseFault::LockDatabase | DatabaseFault::PromoteStandby => {
                bail!("{fault:?} does not happen to Galera here")
            }
        }
    }

    async fn left(&self) -> anyhow::Result<i64> {
        mariadb::left(&mut self.reader().await?).await
    }

    async fn present(&self) -> anyhow::Result<HashSet<String>> {
        mariadb::present(&mut self.reader().await?).await
    }
}
