//! Rescuing, pruning, counting and mending.

use super::error::store_error;
use super::row::count;
use super::{
    LIST, MySqlStore, attempts, delete, list, migrate, numbers, reconcile, rescue, statements,
    triggers,
};
use crate::migrations::trigger_is_missing;
use crate::round::Round;
use async_trait::async_trait;
use postroom_core::{Backlog, Finding, LaneBacklog, Reconciled, RelayId, StoreResult, Upkeep};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, MySqlConnection, Row as _};
use std::time::Duration;

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
        let doing = "counting the backlog";
        let rows = sqlx::query(statements::BACKLOG).fetch_all(&self.pool).await;
        let lanes = rows.and_then(|rows| rows.iter().map(lane).collect());
        Ok(Backlog { lanes: lanes.map_err(|e| store_error(doing, e))? })
    }

    async fn ready(&self) -> StoreResult<()> {
        // Before anything else, so that a server that cannot be used is named.
        self.locking().await.map_err(|e| store_error("looking at the server", e))?;
        migrate::check_version(&self.pool).await
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
        let costly: Vec<String> = sqlx::query_scalar(statements::COSTLY_INDEXES)
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
        // The index on the time of creation bounds what is read. A message that was set to SENT
        // by hand may say no time.
        let before = before(older_than);
        let sql = format!(
            "SELECT seq FROM integration_outbox FORCE INDEX (outbox_created) \
             WHERE created_at < {before} AND status = 'SENT' \
               AND COALESCE(sent_at, created_at) < {before} \
             LIMIT {limit} {locking}"
        );
        let seqs = numbers(&mut tx, sql).await?;
        delete_messages(&mut tx, &seqs).await?;
        tx.commit().await?;
        Ok(seqs.len() as u64)
    }
}

/// Deletes dead deliveries whose message was deleted by hand: no claim ever comes by to find them.
/// Looks at no more than some deliveries, dead or not, and goes on there the next time.
async fn prune_orphans(
    tx: &mut MySqlConnection,
    looked_through: &Round,
    deliveries: usize,
) -> Result<(), Error> {
    let sql = format!(
        "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
         WHERE seq > {} ORDER BY seq LIMIT {deliveries}",
        looked_through.after()
    );
    let seen = numbers(tx, sql).await?;
    looked_through.note(&seen);
    for part in seen.chunks(LIST) {
        let sql = format!(
            "SELECT d.seq FROM outbox_delivery AS d FORCE INDEX (PRIMARY) \
             LEFT JOIN integration_outbox AS m FORCE INDEX (PRIMARY) ON m.seq = d.seq \
             WHERE d.seq IN ({}) AND d.queue = 3 AND m.seq IS NULL",
            list(part)
        );
        let orphans = numbers(tx, sql).await?;
        delete(tx, "outbox_delivery", &orphans).await?;
        attempts::forget(tx, &orphans).await?;
    }
    Ok(())
}

/// The moment so long ago, by the database's clock.
pub(super) fn before(older_than: Duration) -> String {
    format!("UTC_TIMESTAMP(6) - INTERVAL {} MICROSECOND", super::claims::micros(older_than))
}

/// Deletes messages that have no delivery any more, with their attempts.
pub(super) async fn delete_messages(tx: &mut MySqlConnection, seqs: &[i64]) -> Result<(), Error> {
    delete(tx, "integration_outbox", seqs).await?;
    attempts::forget(tx, seqs).await
}

fn lane(row: &MySqlRow) -> Result<LaneBacklog, Error> {
    Ok(LaneBacklog {
        integration: row.try_get(0)?,
        pending: count(row, 1)?,
        claimed: count(row, 2)?,
        failed: count(row, 3)?,
        dead: count(row, 4)?,
        lag_ms: count(row, 5)?,
    })
}
