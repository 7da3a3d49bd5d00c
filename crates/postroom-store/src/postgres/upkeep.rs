//! Rescue, pruning, counting, reconciling.

use super::error::store_error;
use super::settle::attempts_kept;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::{PgStore, attempts, diagnose, migrate, orphans, parcels, reconcile};
use async_trait::async_trait;
use postroom_core::{
    Backlog, Finding, LaneBacklog, Reconciled, RelayId, StoreResult, Token, Upkeep,
};
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

/// Claims of others without a living relay, as in `rescue.sql`. $1 the relay that asks.
pub(super) const ANY_EXPIRED: &str = "SELECT EXISTS (
    SELECT FROM core_outbox.claim
    WHERE relay <> $1 AND relay <> ALL (ARRAY(SELECT id FROM core_outbox.relay WHERE until >= now()))
)";
pub(super) const RESCUE: &str = concat!(
    include_str!("sql/rescue.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM ended)"
);
pub(super) const PRUNE: &str = concat!(
    include_str!("sql/prune.sql"),
    include_str!("sql/remember.sql"),
    "SELECT count(*) FROM changed"
);
const FORGET_KEYS: &str = include_str!("sql/forget_keys.sql");
const BACKLOG: &str = include_str!("sql/backlog.sql");

#[async_trait]
impl Upkeep for PgStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        let doing = "rescuing expired claims";
        let mut client = self.connection().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
        loop {
            // Nearly always there is nothing to do, and that must cost nearly nothing.
            let any = client
                .query_one(ANY_EXPIRED, &[&relay.0])
                .await
                .map_err(|e| store_error(doing, e))?;
            if !any.try_get::<_, bool>(0).map_err(|e| store_error(doing, e))? {
                return Ok(0);
            }
            let fresh = parcels::rescue(&mut client, relay, limit, doing).await?;
            let statement =
                client.prepare_cached(RESCUE).await.map_err(|e| store_error(doing, e))?;
            let token = Token::random().0;
            let params: [&(dyn ToSql + Sync); 4] = [&attempts_kept(), &limit, &token, &relay.0];
            let rows = transact(&client, &begin, &statement, &params)
                .await
                .map_err(|e| store_error(doing, e))?;
            let counted = |index| {
                rows.first()
                    .map_or(Ok(0), |row| count(row, index))
                    .map_err(|e| store_error(doing, e))
            };
            let (freed, ended) = (counted(0)?, counted(1)?);
            // Behind claims that held nothing there may be one that does.
            if freed + fresh > 0 || ended == 0 {
                return Ok(freed + fresh);
            }
        }
    }

    async fn record_sent(&self, noted_before: Duration, limit: usize) -> StoreResult<u64> {
        self.record(noted_before, limit, None).await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let doing = "pruning";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        attempts::sweep(self, limit).await?;
        orphans::prune(self, limit).await?;
        let client = self.connection().await?;
        let row = client
            .query_one(PRUNE, &[&older_than.as_secs_f64(), &limit, &self.remembered()])
            .await
            .map_err(|e| store_error(doing, e))?;
        client.execute(FORGET_KEYS, &[&limit]).await.map_err(|e| store_error(doing, e))?;
        count(&row, 0).map_err(|e| store_error(doing, e))
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let doing = "counting the backlog";
        let client = self.connection().await?;
        self.follow_any_edits(&client).await.map_err(|e| store_error(doing, e))?;
        let rows = client.query(BACKLOG, &[]).await.map_err(|e| store_error(doing, e))?;
        let lanes = rows.iter().map(lane).collect::<Result<_, _>>();
        Ok(Backlog { lanes: lanes.map_err(|e| store_error(doing, e))? })
    }

    async fn ready(&self) -> StoreResult<()> {
        self.refuse_unknown_pooler().await?;
        let client = self.connection().await?;
        client.answer(migrate::check_version(client.client())).await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        let client = self.connection().await?;
        let followed = self.follow_any_edits(&client).await;
        followed.map_err(|e| store_error("following changes by hand", e))?;
        reconcile::reconcile(&client).await
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let client = self.connection().await?;
        client.answer(diagnose::diagnose(client.client())).await
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
