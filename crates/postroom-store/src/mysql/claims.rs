//! Taking.

use super::error::store_error;
use super::follow::follow;
use super::version::Locking;
use super::{LIST, MySqlStore, delete, execute, fetch, list, numbers, row, settle, statements};
use crate::lost_group::{self, Lost};
use crate::own_claims::NoLivingRelay;
use async_trait::async_trait;
use chrono::NaiveDateTime;
use postroom_core::{
    Batch, Claims, Quota, Rescued, Settled, Settlement, StoreResult, Take, Taken, Token, Wake,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// Longer than any claim or delay that makes sense, and short of what the database can add.
const LONGEST: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// Which of the two queues of a lane is looked at; its number in the column `queue`.
#[derive(Clone, Copy)]
enum Queue {
    Ready = 0,
    Rescued = 1,
}

/// A delivery that may be taken.
struct Candidate {
    seq: i64,
    due_at: NaiveDateTime,
    rescues: u32,
    bytes: usize,
    dispatch: u32,
}

#[async_trait]
impl Claims for MySqlStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "taking due messages";
        let batch = self.take_batch(take).await.map_err(|e| store_error(doing, e))?;
        Ok(batch.into_iter().collect())
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        self.take_lost(take, which).await.map_err(|e| store_error(doing, e))
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements).await
    }

    async fn keep_responses(&self, responses: &[(Uuid, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    /// There is no such signal on these servers: relays poll.
    async fn wake(&self) -> Option<Box<dyn Wake>> {
        None
    }
}

impl MySqlStore {
    async fn take_batch(&self, take: &Take<'_>) -> Result<Option<Batch>, Error> {
        let lanes = self.due_lanes(take, Queue::Ready).await?;
        if lanes.is_empty() {
            return Ok(None);
        }
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        loop {
            let mut due: Vec<Candidate> = Vec::new();
            for quota in &lanes {
                let rows = quota.rows.min(take.rows);
                due.extend(pick(&mut tx, locking, quota, Queue::Ready, rows).await?);
            }
            // A lane may be asked for twice.
            let mut picked = HashSet::with_capacity(due.len());
            due.retain(|candidate| picked.insert(candidate.seq));
            // Lane by lane: a backlog of large, older messages takes what the others leave.
            due.truncate(within_limits(&due, take));
            due.sort_unstable_by_key(|candidate| (candidate.due_at, candidate.seq));
            let batch = hold(&mut tx, take, &due, Queue::Ready, false).await?;
            // None of them may be left, and others due all the same.
            if batch.is_some() || due.is_empty() {
                tx.commit().await?;
                return Ok(batch);
            }
        }
    }

    async fn take_lost(&self, take: &Take<'_>, which: Rescued) -> Result<Vec<Batch>, Error> {
        let lanes = self.due_lanes(take, Queue::Rescued).await?;
        let mut batches = Vec::new();
        if lanes.is_empty() {
            return Ok(batches);
        }
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        let mut left = take.rows;
        for quota in lanes {
            let mut due = pick(&mut tx, locking, quota, Queue::Rescued, quota.rows).await?;
            let lost = |one: &Candidate| Lost { rescues: one.rescues, bytes: weight(one, take) };
            lost_group::keep(&mut due, take, quota, which, &mut left, lost);
            batches
                .extend(hold(&mut tx, take, &due, Queue::Rescued, which == Rescued::Alone).await?);
        }
        tx.commit().await?;
        Ok(batches)
    }

    /// The lanes in which something is due. Looks without locking anything: an idle relay leaves
    /// the producers alone.
    async fn due_lanes<'a>(&self, take: &Take<'a>, queue: Queue) -> Result<Vec<&'a Quota>, Error> {
        let lanes: Vec<&Quota> = take.quotas.iter().filter(|quota| quota.rows > 0).collect();
        if lanes.is_empty() || take.rows == 0 {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT {}", vec![statements::IS_DUE; lanes.len()].join(","));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for lane in &lanes {
            query = query.bind(queue as i8).bind(&lane.integration);
        }
        let row = query.fetch_one(&self.pool).await?;
        let mut due = Vec::new();
        for (index, lane) in lanes.into_iter().enumerate() {
            if row.try_get(index)? {
                due.push(lane);
            }
        }
        Ok(due)
    }
}

/// What is due in one lane, locked where the server can pass over what others have locked. Where
/// it cannot, nothing is locked yet: a scan that locks would wait for every producer whose
/// transaction is still open.
async fn pick(
    tx: &mut MySqlConnection,
    locking: Locking,
    quota: &Quota,
    queue: Queue,
    rows: usize,
) -> Result<Vec<Candidate>, Error> {
    let clause = match locking {
        Locking::SkipLocked => locking.clause(),
        Locking::Wait => "",
    };
    let found = sqlx::query(AssertSqlSafe(format!("{}{clause}", statements::DUE)))
        .bind(queue as i8)
        .bind(&quota.integration)
        .bind(i64::try_from(rows).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
    found.iter().map(candidate).collect()
}

fn candidate(row: &MySqlRow) -> Result<Candidate, Error> {
    Ok(Candidate {
        seq: row.try_get(0)?,
        due_at: row.try_get(1)?,
        rescues: row.try_get::<i32, _>(2)?.unsigned_abs(),
        bytes: usize::try_from(row.try_get::<i64, _>(3)?).unwrap_or(0),
        dispatch: row::number(row, 4)?,
    })
}

/// Content over both limits is not read, and weighs nothing.
fn weight(candidate: &Candidate, take: &Take<'_>) -> usize {
    let most = take.payload_limit.saturating_add(take.headers_limit());
    if candidate.bytes > most { 0 } else { candidate.bytes }
}

/// How many of the first candidates fit. A single message may exceed the limit in bytes.
fn within_limits(due: &[Candidate], take: &Take<'_>) -> usize {
    let mut bytes = 0;
    let within = due.iter().take(take.rows).take_while(|candidate| {
        bytes += weight(candidate, take);
        bytes <= take.bytes
    });
    within.count().max(1).min(due.len())
}

/// Makes candidates carry the token, as far as they are still in their queue; which ones do.
/// Where they were locked those are all of them.
async fn claim(
    tx: &mut MySqlConnection,
    token: Token,
    due: &[Candidate],
    queue: Queue,
) -> Result<HashSet<i64>, Error> {
    let mut seqs: Vec<i64> = due.iter().map(|candidate| candidate.seq).collect();
    seqs.sort_unstable();
    let mut claimed = HashSet::with_capacity(seqs.len());
    for part in seqs.chunks(LIST) {
        let (token, part_list) = (literal(token), list(part));
        let sql = format!(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = {token} \
             WHERE seq IN ({part_list}) AND queue = {}",
            queue as i8
        );
        if execute(tx, sql).await? == part.len() as u64 {
            claimed.extend(part);
            continue;
        }
        let sql = format!(
            "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
             WHERE seq IN ({part_list}) AND claim = {token}"
        );
        claimed.extend(numbers(tx, sql).await?);
    }
    Ok(claimed)
}

/// Claims candidates under one fresh token, and reads their messages. Deliveries whose message
/// was deleted, or closed by hand while it was claimed, are put right and do not count; `None`
/// when no others are left.
async fn hold(
    tx: &mut MySqlConnection,
    take: &Take<'_>,
    due: &[Candidate],
    queue: Queue,
    alone: bool,
) -> Result<Option<Batch>, Error> {
    let token = Token::random();
    let claimed = claim(tx, token, due, queue).await?;
    let due: Vec<&Candidate> =
        due.iter().filter(|candidate| claimed.contains(&candidate.seq)).collect();
    let seqs: Vec<i64> = due.iter().map(|candidate| candidate.seq).collect();
    let columns = statements::TAKEN
        .replace("{limit}", &take.payload_limit.to_string())
        .replace("{headers_limit}", &take.headers_limit().to_string());
    let mut rows = HashMap::with_capacity(due.len());
    for part in seqs.chunks(LIST) {
        let sql = format!(
            "SELECT {columns} FROM integration_outbox AS m FORCE INDEX (PRIMARY) \
             WHERE m.seq IN ({}) AND m.status IN ('PENDING', 'FAILED')",
            list(part)
        );
        for row in fetch(tx, sql).await? {
            rows.insert(row.try_get::<i64, _>(0)?, row);
        }
    }
    let mut messages: Vec<Taken> = Vec::with_capacity(rows.len());
    let mut closed = Vec::new();
    for candidate in due {
        match rows.get(&candidate.seq) {
            Some(row) => {
                messages.push(row::taken(row, candidate.rescues, candidate.dispatch, take)?);
            }
            None => closed.push(candidate.seq),
        }
    }
    put_right(tx, &closed).await?;
    if messages.is_empty() {
        return Ok(None);
    }
    let inserted = sqlx::query(statements::INSERT_CLAIM)
        .bind(token.0)
        .bind(take.worker)
        .bind(alone)
        .bind(take.for_queue)
        .bind(take.relay.0)
        .execute(&mut *tx)
        .await?;
    if inserted.rows_affected() == 0 {
        // The transaction is rolled back with it.
        return Err(Error::Configuration(NoLivingRelay.into()));
    }
    Ok(Some(Batch { token, messages }))
}

/// Deliveries whose message is DEAD follow it; those whose message is gone, or neither open nor
/// dead, are removed.
async fn put_right(tx: &mut MySqlConnection, closed: &[i64]) -> Result<(), Error> {
    for part in closed.chunks(LIST) {
        let sql = format!(
            "SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) \
             WHERE seq IN ({}) AND status = 'DEAD'",
            list(part)
        );
        let dead = numbers(tx, sql).await?;
        let gone: Vec<i64> = part.iter().filter(|seq| !dead.contains(seq)).copied().collect();
        delete(tx, "outbox_delivery", &gone).await?;
        let sql = format!(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = NULL, dead = TRUE, failed = FALSE \
             WHERE seq IN ({})",
            list(&dead)
        );
        execute(tx, sql).await?;
        follow(tx, &dead, Locking::Wait).await?;
    }
    if !closed.is_empty() {
        tracing::info!(
            deliveries = closed.len(),
            "put right deliveries whose message was deleted or closed by hand"
        );
    }
    Ok(())
}

/// A token as SQL writes it.
pub(super) fn literal(token: Token) -> String {
    format!("x'{}'", token.0.simple())
}

/// Tokens as SQL writes them in `IN (…)`.
pub(super) fn literals(tokens: &[Token]) -> String {
    tokens.iter().map(|token| literal(*token)).collect::<Vec<_>>().join(", ")
}

/// A time span as the database adds it.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
