//! Rescuing, pruning, counting and mending.

use super::error::store_error;
use super::prune::{prune_orphans, prune_sent};
use super::row::text as text_column;
use super::time::{earlier, now_ms};
use super::{SqliteStore, attempts, diagnose, forget_statistics, migrate, reconcile, rescue};
use async_trait::async_trait;
use postroom_core::{Backlog, Finding, LaneBacklog, Reconciled, RelayId, StoreResult, Upkeep};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use std::time::Duration;

const BACKLOG: &str = include_str!("sql/backlog.sql");

#[async_trait]
impl Upkeep for SqliteStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        rescue::rescue(self, relay, limit).await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let doing = "pruning";
        let mut tx = self.begin(doing).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        prune_orphans(&mut tx, &self.looked_through, limit)
            .await
            .map_err(|e| store_error(doing, e))?;
        attempts::sweep(&mut tx, &self.swept, limit).await.map_err(|e| store_error(doing, e))?;
        let before = earlier(now_ms(), older_than);
        let pruned = prune_sent(&mut tx, before, limit, self.history.remember_events)
            .await
            .map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        forget_statistics(&self.writer, self.readers.lookup.layout()).await;
        Ok(pruned)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let doing = "counting the backlog";
        let rows = sqlx::query(BACKLOG)
            .bind(now_ms())
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        let lanes = rows.iter().map(lane).collect::<Result<_, _>>();
        Ok(Backlog { lanes: lanes.map_err(|e| store_error(doing, e))? })
    }

    async fn ready(&self) -> StoreResult<()> {
        migrate::check_version(&self.readers).await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        reconcile::reconcile(self).await.map_err(|e| store_error("reconciling", e))
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        diagnose::diagnose(self).await.map_err(|e| store_error("looking for what is wrong", e))
    }

    /// A producer's OR REPLACE takes a message's row away under its parcel or delivery.
    fn reconciles_at_start(&self) -> bool {
        true
    }
}

fn lane(row: &SqliteRow) -> Result<LaneBacklog, Error> {
    Ok(LaneBacklog {
        integration: text_column(row, 0)?,
        pending: count(row, 1)?,
        claimed: count(row, 2)?,
        failed: count(row, 3)?,
        dead: count(row, 4)?,
        lag_ms: count(row, 5)?,
    })
}

pub(super) fn count(row: &SqliteRow, index: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(index)?).unwrap_or(0))
}
