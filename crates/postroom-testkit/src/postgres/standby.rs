//! A standby that follows a private server and can take its place.

use super::database::connect;
use super::{Postgres, START_LIMIT};
use crate::eventually::polled;
use crate::guarded::apart;
use crate::{Passage, Proxy};
use anyhow::Context as _;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// How long a standby may take to have what its primary has.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(60);

/// A copy of a server, made by `pg_basebackup`, which follows it.
#[derive(Debug)]
pub struct Standby {
    server: Postgres,
    /// The way to its primary.
    link: Proxy,
}

impl Standby {
    /// Makes a standby of a private server. Commits do not wait for it.
    ///
    /// # Errors
    /// When the primary is not ours, or the standby does not start.
    pub async fn of(primary: &Postgres) -> anyhow::Result<Self> {
        let server = primary.own_server()?;
        let link = Proxy::start(server.address());
        let through = link.address();
        let standby = apart(move || server.standby(through, START_LIMIT)).await?;
        let server = Postgres { url: standby.url(), server: Some(Arc::new(standby)) };
        Ok(Self { server, link })
    }

    /// Makes commits on the primary wait for this standby, and returns once they do.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn make_synchronous(&self, primary: &Postgres) -> anyhow::Result<()> {
        let client = connect(primary.url()).await?;
        // Not before the copy was made: it would be part of the copy, and after its promotion
        // commits would wait for a standby that it does not have.
        client.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", &[]).await?;
        client.execute("SELECT pg_reload_conf()", &[]).await?;
        let is_sync = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        holds(&client, is_sync, "a synchronous standby").await
    }

    /// Returns once the standby has everything that its primary has written so far.
    ///
    /// # Errors
    /// When that does not come about.
    pub async fn catch_up(&self, primary: &Postgres) -> anyhow::Result<()> {
        let client = connect(primary.url()).await?;
        let end: String =
            client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.try_get(0)?;
        let has_it = format!("SELECT FROM pg_stat_replication WHERE replay_lsn >= '{end}'::pg_lsn");
        holds(&client, &has_it, "the standby to catch up").await
    }

    /// Cuts it off from its primary: what is committed from now on, it does not have.
    pub fn disconnect(&self) {
        self.link.set(Passage::Down);
    }

    /// Makes it a primary, with `pg_ctl promote`. The old one must be stopped before: nobody else
    /// keeps clients from writing to it.
    ///
    /// # Errors
    /// When it cannot be promoted.
    pub async fn promote(self) -> anyhow::Result<Postgres> {
        let server = self.server.own_server()?;
        apart(move || server.promote()).await?;
        Ok(self.server)
    }
}

/// Waits until a query finds something.
async fn holds(client: &Client, query: &str, what: &str) -> anyhow::Result<()> {
    let look = || async {
        match client.query(query, &[]).await {
            Ok(rows) => (!rows.is_empty()).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    };
    let found = polled(CATCH_UP_LIMIT, look).await;
    let found = found.with_context(|| format!("waited {CATCH_UP_LIMIT:?} in vain for {what}"))?;
    found.with_context(|| format!("waiting for {what}"))
}
