//! Rescuing, pruning, counting and mending.

use super::error::store_error;
use super::literal::{self, filled};
use super::session::Session;
use super::settle::delete_messages;
use super::{
    LIST, MySqlStore, attempts, deliveries, fetch, layout, migrate, reconcile, remembered, rescue,
    triggers,
};
use crate::migrations::trigger_is_missing;
use crate::round::Round;
use async_trait::async_trait;
use postroom_core::{Backlog, Finding, Reconciled, RelayId, StoreResult, Upkeep};
use sqlx::{Error, Row as _};
use std::time::Duration;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const PRUNE: &str = include_str!("sql/prune.sql");
const SEEN: &str = include_str!("sql/prune_orphans.sql");
const ORPHANS: &str = include_str!("sql/orphans.sql");
const CHANGING_INDEXES: &str = include_str!("sql/changing_indexes.sql");

#[async_trait]
impl Upkeep for MySqlStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        let doing = "rescuing expired claims";
        rescue::rescue(self, relay, limit).await.map_err(|e| store_error(doing, e))
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        self.prune_sent(older_than, limit).await.map_err(|e| store_error("pruning", e))
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.count_backlog().await.map_err(|e| store_error("counting the backlog", e))
    }

    async fn ready(&self) -> StoreResult<()> {
        // Before anything else, so that a server that cannot be used is named.
        self.locking().await.map_err(|e| store_error("looking at the server", e))?;
        migrate::check_version(&self.pool).await?;
        let Some(rows) = &self.rows else { return Ok(()) };
        let failed = |error| store_error("looking at the table of a layout", error);
        let mut connection = self.pool.acquire().await.map_err(failed)?;
        let foreign = rows.look_up(&mut connection).await?;
        layout::check_applied(&mut connection, &foreign).await?;
        connection.answered();
        Ok(())
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        reconcile::reconcile(self).await.map_err(|e| store_error("reconciling", e))
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let failed = |error| store_error("looking for what is wrong", error);
        let found = reconcile::count(self).await.map_err(failed)?;
        let mut findings = Finding::disagreements(&found);
        let mut connection = self.pool.acquire().await.map_err(failed)?;
        let missing = triggers::missing(&mut connection).await.map_err(failed)?;
        findings.extend(missing.into_iter().map(trigger_is_missing));
        if let Some(rows) = &self.rows {
            findings
                .extend(layout::examine(&mut connection, rows.layout(), rows.database()).await?);
        }
        let costly: Vec<String> = sqlx::query_scalar(CHANGING_INDEXES)
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
        findings.extend(costly.into_iter().map(|index| {
            Finding::warning(
                format!(
                    "the index {index} names a column that changes: every outcome writes to it"
                ),
                format!("DROP INDEX {index} ON integration_outbox, unless something reads by it"),
            )
        }));
        Ok(findings)
    }
}

impl MySqlStore {
    async fn prune_sent(&self, older_than: Duration, limit: usize) -> Result<u64, Error> {
        let locking = self.locking().await?.clause();
        let mut tx = self.begin().await?;
        prune_orphans(&mut tx, &self.looked_through, limit).await?;
        attempts::sweep(&mut tx, &self.swept, limit).await?;
        let places = [("before", before(older_than)), ("limit", limit.to_string())];
        let sql = filled(PRUNE, &places.each_ref().map(|(name, value)| (*name, value.as_str())));
        let rows = fetch(&mut tx, format!("{sql} {locking}")).await?;
        let seqs = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        remembered::remember(&mut tx, &seqs, self.remember_events).await?;
        delete_messages(&mut tx, &seqs).await?;
        remembered::forget(&mut tx, limit).await?;
        tx.commit().await?;
        Ok(seqs.len() as u64)
    }
}

/// Deletes dead deliveries whose message was deleted by hand: no claim ever comes by to find them.
/// Looks at no more than some deliveries, dead or not, and goes on there the next time.
async fn prune_orphans(
    tx: &mut Session,
    looked_through: &Round,
    deliveries: usize,
) -> Result<(), Error> {
    let (after, rows) = (looked_through.after().to_string(), deliveries.to_string());
    let seen = fetch(tx, filled(SEEN, &[("after", &after), ("rows", &rows)])).await?;
    let seen = seen.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    looked_through.note(&seen);
    for part in seen.chunks(LIST) {
        let sql = filled(ORPHANS, &[("seqs", &literal::numbers(part.iter().copied()))]);
        let mut orphans: Vec<Uuid> = Vec::new();
        for row in fetch(tx, sql).await? {
            orphans.push(row.try_get::<Hyphenated, _>(0)?.into());
        }
        deliveries::remove(tx, &orphans).await?;
    }
    Ok(())
}

/// The moment so long ago, by the database's clock.
pub(super) fn before(older_than: Duration) -> String {
    format!("UTC_TIMESTAMP(6) - INTERVAL {} MICROSECOND", super::claims::micros(older_than))
}
