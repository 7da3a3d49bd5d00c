//! Rescue, pruning, counting, reconciling.

use super::error::store_error;
use super::parcels::Edits;
use super::transaction::{BEGIN, transact};
use super::{PgStore, attempts, diagnose, migrate, orphans, reconcile, rescue};
use async_trait::async_trait;
use postroom_core::{Backlog, Finding, LaneBacklog, Reconciled, RelayId, StoreResult, Upkeep};
use std::time::Duration;
use tokio_postgres::{Error, Row};

pub(super) const PRUNE: &str = concat!(
    include_str!("sql/prune.sql"),
    include_str!("sql/remember.sql"),
    "SELECT count(*) FROM changed"
);
/// For how long changes by hand are followed before the backlog is counted, which has to be known in time. What is
/// left is counted as the ledger has it.
const BACKLOG_FOLLOWS_FOR: Duration = Duration::from_secs(2);
const FORGET_KEYS: &str = include_str!("sql/forget_events.sql");
pub(super) const BACKLOG: &str = include_str!("sql/backlog.sql");

#[async_trait]
impl Upkeep for PgStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        let mut client = self.connection().await?;
        rescue::rescue(&mut client, relay, i64::try_from(limit).unwrap_or(i64::MAX)).await
    }

    async fn record_sent(&self, noted_before: Duration, limit: usize) -> StoreResult<u64> {
        self.record(noted_before, limit, None).await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let doing = "pruning";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        attempts::sweep(self, limit).await?;
        orphans::prune(self, limit).await?;
        if older_than == Duration::MAX {
            return Ok(0);
        }
        let client = self.connection().await?;
        let row = client
            .query_one(PRUNE, &[&older_than.as_secs_f64(), &limit, &self.remembered()])
            .await
            .map_err(|e| store_error(doing, e))?;
        // Where no history is kept, they come from elsewhere, and there may be more than messages.
        let most = u64::try_from(limit).unwrap_or(u64::MAX);
        while client.execute(FORGET_KEYS, &[&limit]).await.map_err(|e| store_error(doing, e))?
            >= most
        {}
        count(&row, 0).map_err(|e| store_error(doing, e))
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let doing = "counting the backlog";
        self.poll_when_due().await?;
        let client = self.connection().await?;
        let followed = self.follow_any_edits(&client, Edits::All, BACKLOG_FOLLOWS_FOR).await;
        followed.map_err(|e| store_error(doing, e))?;
        let count = client.prepare_cached(BACKLOG).await.map_err(|e| store_error(doing, e))?;
        // By index: what is in flight is looked up by key, whatever the statistics say.
        let rows =
            transact(&client, BEGIN, &count, &[]).await.map_err(|e| store_error(doing, e))?;
        let lanes = rows.iter().map(lane).collect::<Result<_, _>>();
        Ok(Backlog { lanes: lanes.map_err(|e| store_error(doing, e))? })
    }

    async fn ready(&self) -> StoreResult<()> {
        self.refuse_unknown_pooler().await?;
        self.forget_wording();
        let client = self.connection().await?;
        migrate::check_version(&client).await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        self.poll().await?;
        // What was delivered says so then: a restore may have put it into a parcel again.
        self.record(Duration::ZERO, usize::MAX, None).await?;
        let client = self.connection().await?;
        let edits = self.follow_any_edits(&client, Edits::All, Duration::MAX).await;
        let edits = edits.map_err(|e| store_error("following changes by hand", e))?;
        let mended = reconcile::reconcile(&client).await?;
        Ok(Reconciled { followed: mended.followed + edits, ..mended })
    }

    async fn looks_restored(&self) -> StoreResult<bool> {
        let is_restored = self.find_restore().await?;
        if !is_restored {
            // Nobody has to look again before the first take.
            let _ = self.restore_looked_for.set(());
        }
        Ok(is_restored)
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        self.poll().await?;
        let client = self.connection().await?;
        diagnose::diagnose(&client).await
    }
}

fn lane(row: &Row) -> Result<LaneBacklog, Error> {
    Ok(LaneBacklog {
        integration: row.try_get(0)?,
        pending: count(row, 1)?,
        claimed: count(row, 2)?,
        failed: count(row, 3)?,
        dead: count(row, 4)?,
        lag_ms: row.try_get::<_, Option<i64>>(5)?.map_or(0, |ms| u64::try_from(ms).unwrap_or(0)),
    })
}

pub(super) fn count(row: &Row, index: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<_, i64>(index)?).unwrap_or(0))
}
