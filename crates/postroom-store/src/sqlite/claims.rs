//! Taking.

use super::error::store_error;
use super::row::{number, taken};
use super::time::now_ms;
use super::{SqliteStore, settle, statements, wake};
use crate::lost_group::{self, Lost};
use crate::own_claims::NoLivingRelay;
use async_trait::async_trait;
use postroom_core::{
    Batch, Claims, Quota, Rescued, Settled, Settlement, StoreResult, Take, Taken, Token, Wake,
};
use sqlx::{Error, Row as _, SqliteConnection};
use std::collections::HashSet;
use uuid::Uuid;

/// A delivery that may be taken.
struct Candidate {
    due_at: i64,
    seq: i64,
    rescues: u32,
    dispatch: u32,
    weight: usize,
}

/// Which of the two queues of a lane is looked at.
#[derive(Clone, Copy)]
enum Queue {
    Ready,
    Rescued,
}

#[async_trait]
impl Claims for SqliteStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "taking due messages";
        if !self.is_due(take, Queue::Ready).await.map_err(|e| store_error(doing, e))? {
            return Ok(Vec::new());
        }
        let mut tx = self.begin(doing).await?;
        let batch = take_batch(&mut tx, take).await.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(batch.into_iter().collect())
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        if !self.is_due(take, Queue::Rescued).await.map_err(|e| store_error(doing, e))? {
            return Ok(Vec::new());
        }
        let mut tx = self.begin(doing).await?;
        let batches = take_lost(&mut tx, take, which).await.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements).await
    }

    async fn keep_responses(&self, responses: &[(Uuid, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.notify.then(|| wake::watch(&self.path))
    }
}

impl SqliteStore {
    /// Looks before the write lock is taken: an idle relay leaves the producers alone.
    async fn is_due(&self, take: &Take<'_>, queue: Queue) -> Result<bool, Error> {
        let lanes: Vec<&str> = open_lanes(take).map(|quota| quota.integration.as_str()).collect();
        if lanes.is_empty() || take.rows == 0 {
            return Ok(false);
        }
        let statement = match queue {
            Queue::Ready => statements::IS_DUE,
            Queue::Rescued => statements::IS_RESCUED_DUE,
        };
        sqlx::query_scalar(statement)
            .bind(json(&lanes))
            .bind(now_ms())
            .fetch_one(&self.readers)
            .await
    }
}

fn open_lanes<'a>(take: &Take<'a>) -> impl Iterator<Item = &'a Quota> {
    take.quotas.iter().filter(|quota| quota.rows > 0)
}

async fn take_batch(tx: &mut SqliteConnection, take: &Take<'_>) -> Result<Option<Batch>, Error> {
    let now = now_ms();
    let mut due = Vec::new();
    for quota in open_lanes(take) {
        let rows = quota.rows.min(take.rows);
        due.extend(candidates(tx, quota, Queue::Ready, now, rows, take).await?);
    }
    // A lane may be asked for twice.
    let mut picked = HashSet::with_capacity(due.len());
    due.retain(|candidate: &Candidate| picked.insert(candidate.seq));
    // Lane by lane: a backlog of large, older messages takes what the others leave.
    due.truncate(take.rows);
    let mut bytes = 0;
    let within = due.iter().take_while(|candidate| {
        bytes += candidate.weight;
        bytes <= take.bytes
    });
    // A single message may exceed the limit.
    let taken = within.count().max(1).min(due.len());
    due.truncate(taken);
    due.sort_unstable_by_key(|candidate| (candidate.due_at, candidate.seq));
    if due.is_empty() {
        return Ok(None);
    }
    hold(tx, take, &due, now, false).await.map(Some)
}

async fn take_lost(
    tx: &mut SqliteConnection,
    take: &Take<'_>,
    which: Rescued,
) -> Result<Vec<Batch>, Error> {
    let now = now_ms();
    let mut batches = Vec::new();
    let mut left = take.rows;
    for quota in open_lanes(take) {
        let mut due = candidates(tx, quota, Queue::Rescued, now, quota.rows, take).await?;
        let lost = |one: &Candidate| Lost { rescues: one.rescues, bytes: one.weight };
        lost_group::keep(&mut due, take, quota, which, &mut left, lost);
        if !due.is_empty() {
            batches.push(hold(tx, take, &due, now, which == Rescued::Alone).await?);
        }
    }
    Ok(batches)
}

/// What is due in one lane. Deliveries whose message was deleted, or closed by hand while it was
/// claimed, are put right on the way and do not count.
async fn candidates(
    tx: &mut SqliteConnection,
    quota: &Quota,
    queue: Queue,
    now: i64,
    rows: usize,
    take: &Take<'_>,
) -> Result<Vec<Candidate>, Error> {
    let statement = match queue {
        Queue::Ready => statements::DUE,
        Queue::Rescued => statements::RESCUED_DUE,
    };
    loop {
        let rows = sqlx::query(statement)
            .bind(&quota.integration)
            .bind(now)
            .bind(i64::try_from(rows).unwrap_or(i64::MAX))
            .fetch_all(&mut *tx)
            .await?;
        let mut due = Vec::with_capacity(rows.len());
        let mut closed: Vec<i64> = Vec::new();
        for row in &rows {
            let seq = row.try_get(0)?;
            let status: Option<String> = row.try_get(3)?;
            if !matches!(status.as_deref(), Some("PENDING" | "FAILED")) {
                closed.push(seq);
                continue;
            }
            let size =
                |index| row.try_get::<i64, _>(index).map(|n| usize::try_from(n).unwrap_or(0));
            // What is over its limit is not read.
            let within = |bytes, limit| if bytes > limit { 0 } else { bytes };
            let (payload, headers) = (size(4)?, size(5)?);
            due.push(Candidate {
                due_at: row.try_get(1)?,
                seq,
                rescues: row.try_get(2)?,
                dispatch: number(row, 6)?,
                weight: within(payload, take.payload_limit) + within(headers, take.headers_limit()),
            });
        }
        if closed.is_empty() {
            return Ok(due);
        }
        sqlx::query(statements::FORGET_CLOSED).bind(json(&closed)).execute(&mut *tx).await?;
        sqlx::query(statements::FOLLOW).bind(json(&closed)).execute(&mut *tx).await?;
        tracing::info!(
            integration = quota.integration,
            deliveries = closed.len(),
            "put right deliveries whose message was deleted or closed by hand"
        );
    }
}

/// Claims deliveries under one fresh token, and reads their messages.
async fn hold(
    tx: &mut SqliteConnection,
    take: &Take<'_>,
    due: &[Candidate],
    now: i64,
    alone: bool,
) -> Result<Batch, Error> {
    let token = Token::random();
    let seqs = json(&due.iter().map(|candidate| candidate.seq).collect::<Vec<_>>());
    let inserted = sqlx::query(statements::INSERT_CLAIM)
        .bind(token.0.to_string())
        .bind(take.worker)
        .bind(now)
        .bind(alone)
        .bind(take.for_queue)
        .bind(take.relay.0.to_string())
        .execute(&mut *tx)
        .await?;
    if inserted.rows_affected() == 0 {
        // The transaction is rolled back with it.
        return Err(Error::Configuration(NoLivingRelay.into()));
    }
    sqlx::query(statements::CLAIM).bind(token.0.to_string()).bind(&seqs).execute(&mut *tx).await?;
    let rows = sqlx::query(statements::READ)
        .bind(&seqs)
        .bind(i64::try_from(take.payload_limit).unwrap_or(i64::MAX))
        .bind(i64::try_from(take.headers_limit()).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
    let messages: Result<Vec<Taken>, Error> = rows
        .iter()
        .zip(due)
        .map(|(row, candidate)| taken(row, candidate.rescues, candidate.dispatch, take))
        .collect();
    Ok(Batch { token, messages: messages? })
}

/// A list as the JSON array that `json_each` reads: one statement for any number of rows.
pub(super) fn json<T: Clone + Into<serde_json::Value>>(list: &[T]) -> String {
    serde_json::Value::from(list).to_string()
}
