//! Rescuing, pruning, counting and mending.

use super::claims::json;
use super::error::store_error;
use super::prune::{prune_orphans, prune_sent};
use super::row::text as text_column;
use super::time::{earlier, now_ms, text};
use super::{SqliteStore, attempts, forget_statistics, migrate, statements};
use crate::migrations::trigger_is_missing;
use async_trait::async_trait;
use postroom_core::{
    AttemptOutcome, Backlog, Finding, LaneBacklog, Reconciled, RelayId, StoreResult, Token, Tried,
    Upkeep,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection};
use std::time::Duration;

/// How many rows are mended under one write lock.
const MEND_ROWS: i64 = 5_000;

#[async_trait]
impl Upkeep for SqliteStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        let doing = "rescuing expired claims";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let relay = relay.0.to_string();
        loop {
            // Looks before the write lock is taken: mostly there is nothing to rescue.
            let expired = sqlx::query(statements::EXPIRED)
                .bind(now_ms())
                .bind(1)
                .bind(&relay)
                .fetch_optional(&self.readers)
                .await
                .map_err(|e| store_error(doing, e))?;
            if expired.is_none() {
                return Ok(0);
            }
            let mut tx = self.begin(doing).await?;
            let freed = rescue(&mut tx, &relay, limit).await.map_err(|e| store_error(doing, e))?;
            tx.commit().await.map_err(|e| store_error(doing, e))?;
            // Behind claims that held nothing there may be one that does.
            if freed > 0 {
                return Ok(freed);
            }
        }
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let doing = "pruning";
        let mut tx = self.begin(doing).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        prune_orphans(&mut tx, &self.looked_through, limit)
            .await
            .map_err(|e| store_error(doing, e))?;
        attempts::sweep(&mut tx, &self.swept, limit).await.map_err(|e| store_error(doing, e))?;
        let before = text(earlier(now_ms(), older_than));
        let pruned =
            prune_sent(&mut tx, &before, limit).await.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        forget_statistics(&self.writer).await;
        Ok(pruned)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let doing = "counting the backlog";
        let rows = sqlx::query(statements::BACKLOG)
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
        let mend = async |find, mend| {
            self.mend(find, mend).await.map_err(|e| store_error("reconciling", e))
        };
        // Freed first: what turns out to have no message goes with the others.
        let freed = mend(statements::STRAY, statements::FREE_STRAY).await?;
        let made = mend(statements::UNFED, statements::FEED).await?;
        let followed = mend(statements::UNLIKE, statements::FOLLOW).await?;
        let removed = mend(statements::CLOSED, statements::FORGET_CLOSED).await?;
        // SQLite keeps its numbers ahead of those in use by itself, and apart by their key.
        Ok(Reconciled { made, removed, freed, followed, ..Reconciled::default() })
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let failed = |error| store_error("looking for what is wrong", error);
        let row = sqlx::query(statements::DISAGREEMENTS).fetch_one(&self.readers).await;
        let row = row.map_err(failed)?;
        let counted = |index| count(&row, index).map_err(failed);
        let mut findings = Finding::disagreements(&Reconciled {
            made: counted(0)?,
            removed: counted(1)?,
            freed: counted(2)?,
            followed: counted(3)?,
            ..Reconciled::default()
        });
        let mut connection = self.readers.acquire().await.map_err(failed)?;
        let missing = migrate::missing_triggers(&mut connection).await.map_err(failed)?;
        findings.extend(missing.into_iter().map(trigger_is_missing));
        Ok(findings)
    }

    /// A producer's OR REPLACE takes a message's row away under its delivery.
    fn reconciles_at_start(&self) -> bool {
        true
    }
}

impl SqliteStore {
    /// Looks for numbers with `find`, without a lock, and mends them in bounded steps.
    async fn mend(&self, find: &'static str, mend: &'static str) -> Result<u64, Error> {
        let mut after = i64::MIN;
        let mut mended = 0;
        loop {
            let found: Vec<i64> = sqlx::query_scalar(find)
                .bind(after)
                .bind(MEND_ROWS)
                .fetch_all(&self.readers)
                .await?;
            let Some(last) = found.last() else { return Ok(mended) };
            after = *last;
            let mut tx = self.writer.begin_with("BEGIN IMMEDIATE").await?;
            let done = sqlx::query(mend).bind(json(&found)).execute(&mut *tx).await?;
            tx.commit().await?;
            mended += done.rows_affected();
        }
    }
}

async fn rescue(tx: &mut SqliteConnection, relay: &str, limit: i64) -> Result<u64, Error> {
    let now = now_ms();
    let expired = sqlx::query(statements::EXPIRED)
        .bind(now)
        .bind(limit)
        .bind(relay)
        .fetch_all(&mut *tx)
        .await?;
    let mut rescued = 0;
    for claim in &expired {
        let token = text_column(claim, 0)?;
        let alone: bool = claim.try_get(2)?;
        let dispatched: bool = claim.try_get(4)?;
        if alone {
            // While the claim stands: the trigger would follow it otherwise, as a change by hand.
            let held: Vec<i64> =
                sqlx::query_scalar(statements::HELD).bind(&token).fetch_all(&mut *tx).await?;
            let took = Duration::from_millis(count(claim, 3)?);
            count_lost(tx, &text_column(claim, 1)?, &held, took, now).await?;
        }
        let freed: Vec<i64> = sqlx::query_scalar(statements::FREE_RESCUED)
            .bind(&token)
            .bind(i64::from(!dispatched))
            .fetch_all(&mut *tx)
            .await?;
        sqlx::query(statements::FOLLOW).bind(json(&freed)).execute(&mut *tx).await?;
        sqlx::query(statements::FORGET_CLAIM).bind(&token).execute(&mut *tx).await?;
        rescued += freed.len() as u64;
    }
    Ok(rescued)
}

/// A message that was lost alone has failed.
async fn count_lost(
    tx: &mut SqliteConnection,
    worker: &str,
    seqs: &[i64],
    took: Duration,
    now: i64,
) -> Result<(), Error> {
    let error = format!(
        "lost with its relay: the claim of {worker} expired while it handled this message alone"
    );
    let lost: Vec<i64> = sqlx::query_scalar(statements::COUNT_LOST)
        .bind(Token::random().0.to_string())
        .bind(json(seqs))
        .bind(&error)
        .bind(text(now))
        .fetch_all(&mut *tx)
        .await?;
    let tried = Tried { outcome: AttemptOutcome::Lost, took };
    for seq in lost {
        attempts::note(tx, seq, tried, &error, now).await?;
    }
    Ok(())
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
