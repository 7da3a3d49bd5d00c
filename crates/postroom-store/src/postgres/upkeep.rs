//! Rescue, pruning, counting, reconciling.

use super::error::store_error;
use super::settle::attempts_kept;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::{PgStore, attempts, diagnose, migrate, orphans, reconcile};
use async_trait::async_trait;
use postroom_core::{Backlog, Finding, LaneBacklog, Reconciled, StoreResult, Token, Upkeep};
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

/// Claims that no lease keeps, as in `rescue.sql`.
pub(super) const ANY_EXPIRED: &str = "SELECT EXISTS (
    SELECT FROM core_outbox.claim
    WHERE until < now()
      AND (lease = ANY (ARRAY(
          SELECT token FROM core_outbox.claim
          WHERE dispatched AND lease IS NULL AND until >= now()
      ))) IS NOT TRUE
)";
pub(super) const RESCUE: &str = concat!(
    include_str!("sql/rescue.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM ended)"
);
const PRUNE: &str = concat!(include_str!("sql/prune.sql"), "SELECT count(*) FROM changed");
const BACKLOG: &str = include_str!("sql/backlog.sql");

#[async_trait]
impl Upkeep for PgStore {
    async fn rescue_except(&self, held: &[Token], limit: usize) -> StoreResult<u64> {
        let doing = "rescuing expired claims";
        let client = self.connection().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
        let held: Vec<Uuid> = held.iter().map(|token| token.0).collect();
        loop {
            // Nearly always there is nothing to do, and that must cost nearly nothing.
            let any =
                client.query_one(ANY_EXPIRED, &[]).await.map_err(|e| store_error(doing, e))?;
            if !any.try_get::<_, bool>(0).map_err(|e| store_error(doing, e))? {
                return Ok(0);
            }
            let statement =
                client.prepare_cached(RESCUE).await.map_err(|e| store_error(doing, e))?;
            let token = Token::random().0;
            let params: [&(dyn ToSql + Sync); 4] = [&attempts_kept(), &limit, &token, &held];
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
            if freed > 0 || ended == 0 {
                return Ok(freed);
            }
        }
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let doing = "pruning";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        attempts::sweep(self, limit).await?;
        orphans::prune(self, limit).await?;
        let client = self.connection().await?;
        let row = client
            .query_one(PRUNE, &[&older_than.as_secs_f64(), &limit])
            .await
            .map_err(|e| store_error(doing, e))?;
        count(&row, 0).map_err(|e| store_error(doing, e))
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let doing = "counting the backlog";
        let client = self.connection().await?;
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
        reconcile::reconcile(&self.connection().await?).await
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
