//! Taking and extending.

use super::connect::promptly;
use super::error::store_error;
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, list, numbers, row, settle, statements};
use async_trait::async_trait;
use chrono::NaiveDateTime;
use postroom_core::{
    Batch, Claims, Quota, Settled, Settlement, StoreResult, Take, Taken, Token, Wake,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::collections::HashMap;
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
}

#[async_trait]
impl Claims for MySqlStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Option<Batch>> {
        let doing = "taking due messages";
        let work = async { self.take_batch(take).await.map_err(|e| store_error(doing, e)) };
        promptly(doing, work).await
    }

    async fn take_rescued(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        let work = async { self.take_alone(take).await.map_err(|e| store_error(doing, e)) };
        promptly(doing, work).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        promptly(settle::DOING, settle::settle(self, settlements)).await
    }

    async fn extend(&self, tokens: &[Token], claim_time: Duration) -> StoreResult<Vec<Token>> {
        let doing = "extending claims";
        let work = async {
            self.extend_claims(tokens, claim_time).await.map_err(|e| store_error(doing, e))
        };
        promptly(doing, work).await
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
            let token = Token::random();
            let mut due = Vec::new();
            for quota in &lanes {
                let rows = quota.rows.min(take.rows);
                due.extend(pick(&mut tx, locking, token, quota, Queue::Ready, rows).await?);
            }
            due.sort_unstable_by_key(|candidate| (candidate.due_at, candidate.seq));
            due.dedup_by_key(|candidate| candidate.seq);
            let kept = within_limits(&due, take);
            claim(&mut tx, locking, token, &due, kept).await?;
            due.truncate(kept);
            if due.is_empty() {
                return Ok(None);
            }
            if let Some(batch) = hold(&mut tx, take, token, &due, false).await? {
                tx.commit().await?;
                return Ok(Some(batch));
            }
        }
    }

    async fn take_alone(&self, take: &Take<'_>) -> Result<Vec<Batch>, Error> {
        let lanes = self.due_lanes(take, Queue::Rescued).await?;
        let mut batches = Vec::new();
        if lanes.is_empty() {
            return Ok(batches);
        }
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        for quota in lanes.iter().take(take.rows) {
            let token = Token::random();
            let first = pick(&mut tx, locking, token, quota, Queue::Rescued, 1).await?;
            claim(&mut tx, locking, token, &first, first.len()).await?;
            batches.extend(hold(&mut tx, take, token, &first, true).await?);
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

    async fn extend_claims(
        &self,
        tokens: &[Token],
        claim_time: Duration,
    ) -> Result<Vec<Token>, Error> {
        let mut held: Vec<Uuid> = Vec::new();
        for part in tokens.chunks(LIST) {
            let mut tx = self.begin().await?;
            let wanted = literals(part);
            let sql = format!(
                "SELECT token FROM outbox_claim WHERE token IN ({wanted}) ORDER BY token FOR UPDATE"
            );
            for row in fetch(&mut tx, sql).await? {
                held.push(row.try_get(0)?);
            }
            let until = format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", micros(claim_time));
            let sql = format!("UPDATE outbox_claim SET until = {until} WHERE token IN ({wanted})");
            execute(&mut tx, sql).await?;
            tx.commit().await?;
        }
        Ok(tokens.iter().filter(|token| !held.contains(&token.0)).copied().collect())
    }
}

/// What is due in one lane, locked. On servers that cannot pass over locked rows it is claimed
/// at once instead, by a statement that waits for its turn and stops at its limit.
async fn pick(
    tx: &mut MySqlConnection,
    locking: Locking,
    token: Token,
    quota: &Quota,
    queue: Queue,
    rows: usize,
) -> Result<Vec<Candidate>, Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    let found = match locking {
        Locking::SkipLocked => {
            let sql = format!("{}{}", statements::DUE, locking.clause());
            sqlx::query(AssertSqlSafe(sql))
                .bind(queue as i8)
                .bind(&quota.integration)
                .bind(rows)
                .fetch_all(&mut *tx)
                .await?
        }
        Locking::Wait => {
            let claimed = sqlx::query(statements::CLAIM_DUE)
                .bind(token.0)
                .bind(queue as i8)
                .bind(&quota.integration)
                .bind(rows)
                .execute(&mut *tx)
                .await?;
            if claimed.rows_affected() == 0 {
                return Ok(Vec::new());
            }
            // With what earlier lanes gave; what is there twice is dropped later.
            sqlx::query(statements::CLAIMED).bind(token.0).fetch_all(&mut *tx).await?
        }
    };
    found.iter().map(candidate).collect()
}

fn candidate(row: &MySqlRow) -> Result<Candidate, Error> {
    Ok(Candidate {
        seq: row.try_get(0)?,
        due_at: row.try_get(1)?,
        rescues: row.try_get::<i32, _>(2)?.unsigned_abs(),
        bytes: usize::try_from(row.try_get::<i64, _>(3)?).unwrap_or(0),
    })
}

/// How many of the first candidates fit. A single message may exceed the limit in bytes; content
/// over the payload limit is not read, and weighs nothing.
fn within_limits(due: &[Candidate], take: &Take<'_>) -> usize {
    let mut bytes = 0;
    let within = due.iter().take(take.rows).take_while(|candidate| {
        bytes += if candidate.bytes > take.payload_limit { 0 } else { candidate.bytes };
        bytes <= take.bytes
    });
    within.count().max(1).min(due.len())
}

/// Makes the first `kept` candidates carry the token, and no others.
async fn claim(
    tx: &mut MySqlConnection,
    locking: Locking,
    token: Token,
    due: &[Candidate],
    kept: usize,
) -> Result<(), Error> {
    let (kept, rest) = due.split_at(kept);
    let (changed, claim) = match locking {
        Locking::SkipLocked => (kept, literal(token)),
        Locking::Wait => (rest, "NULL".to_owned()),
    };
    for part in seqs(changed).chunks(LIST) {
        let sql =
            format!("UPDATE outbox_delivery SET claim = {claim} WHERE seq IN ({})", list(part));
        execute(tx, sql).await?;
    }
    Ok(())
}

/// Reads the messages of what carries the token, and puts the claim on record. Deliveries whose
/// message was deleted, or closed by hand while it was claimed, are put right and do not count;
/// `None` when no others are left.
async fn hold(
    tx: &mut MySqlConnection,
    take: &Take<'_>,
    token: Token,
    due: &[Candidate],
    alone: bool,
) -> Result<Option<Batch>, Error> {
    let columns = statements::TAKEN.replace("{limit}", &take.payload_limit.to_string());
    let mut rows = HashMap::with_capacity(due.len());
    for part in seqs(due).chunks(LIST) {
        let sql = format!(
            "SELECT {columns} FROM integration_outbox AS m \
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
            Some(row) => messages.push(row::taken(row, candidate.rescues, take.payload_limit)?),
            None => closed.push(candidate.seq),
        }
    }
    put_right(tx, &closed).await?;
    if messages.is_empty() {
        return Ok(None);
    }
    sqlx::query(statements::INSERT_CLAIM)
        .bind(token.0)
        .bind(take.worker)
        .bind(micros(take.claim_time))
        .bind(alone)
        .execute(&mut *tx)
        .await?;
    Ok(Some(Batch { token, messages }))
}

/// Deliveries whose message is DEAD follow it; those whose message is gone, or neither open nor
/// dead, are removed.
async fn put_right(tx: &mut MySqlConnection, closed: &[i64]) -> Result<(), Error> {
    for part in closed.chunks(LIST) {
        let sql = format!(
            "SELECT seq FROM integration_outbox WHERE seq IN ({}) AND status = 'DEAD'",
            list(part)
        );
        let dead = numbers(tx, sql).await?;
        let gone: Vec<i64> = part.iter().filter(|seq| !dead.contains(seq)).copied().collect();
        execute(tx, format!("DELETE FROM outbox_delivery WHERE seq IN ({})", list(&gone))).await?;
        let sql = format!(
            "UPDATE outbox_delivery SET claim = NULL, dead = TRUE, failed = FALSE \
             WHERE seq IN ({})",
            list(&dead)
        );
        execute(tx, sql).await?;
    }
    if !closed.is_empty() {
        tracing::info!(
            deliveries = closed.len(),
            "put right deliveries whose message was deleted or closed by hand"
        );
    }
    Ok(())
}

fn seqs(due: &[Candidate]) -> Vec<i64> {
    due.iter().map(|candidate| candidate.seq).collect()
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
