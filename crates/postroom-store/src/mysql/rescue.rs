//! Freeing what expired claims hold. Lock order: claim, delivery, message.

use super::attempts::{self, Failure};
use super::claims::{literal, literals};
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, list, now, numbers, statements};
use chrono::NaiveDateTime;
use postroom_core::{AttemptOutcome, Token};
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::time::Duration;
use uuid::Uuid;

/// A claim that has expired.
struct Expired {
    token: Token,
    worker: String,
    alone: bool,
}

/// Waits for nobody where the server can: a delivery that is locked is being settled, and is
/// left for the next time, with its claim. Rows are found first and locked by their key then:
/// to lock them by another index is to lock that first, and a settlement comes the other way.
pub(super) async fn rescue(store: &MySqlStore, limit: usize) -> Result<u64, Error> {
    let mut tokens = Vec::new();
    let expired = format!("{} ORDER BY until, token LIMIT {limit}", statements::EXPIRED);
    for row in sqlx::query(AssertSqlSafe(expired)).fetch_all(&store.pool).await? {
        tokens.push(Token(row.try_get::<Uuid, _>(0)?));
    }
    if tokens.is_empty() {
        return Ok(0);
    }
    let locking = store.locking().await?;
    let mut tx = store.begin().await?;
    let mut freed = 0;
    for part in tokens.chunks(LIST) {
        let sql = format!(
            "SELECT token, worker, alone FROM outbox_claim FORCE INDEX (PRIMARY) \
             WHERE token IN ({}) AND until < UTC_TIMESTAMP(6) {}",
            literals(part),
            locking.clause()
        );
        for row in fetch(&mut tx, sql).await? {
            let token = Token(row.try_get::<Uuid, _>(0)?);
            let claim = Expired { token, worker: row.try_get(1)?, alone: row.try_get(2)? };
            freed += free(&mut tx, &claim, locking).await?;
            sqlx::query(statements::FORGET_CLAIM)
                .bind(claim.token.0)
                .bind(claim.token.0)
                .execute(&mut *tx)
                .await?;
        }
    }
    tx.commit().await?;
    Ok(freed)
}

async fn free(tx: &mut MySqlConnection, claim: &Expired, locking: Locking) -> Result<u64, Error> {
    let token = literal(claim.token);
    let held =
        numbers(tx, format!("SELECT seq FROM outbox_delivery WHERE claim = {token}")).await?;
    let mut seqs = Vec::with_capacity(held.len());
    for part in held.chunks(LIST) {
        let sql = format!(
            "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
             WHERE seq IN ({}) AND claim = {token} {}",
            list(part),
            locking.clause()
        );
        seqs.extend(numbers(tx, sql).await?);
    }
    for part in seqs.chunks(LIST) {
        follow_elsewhere(tx, part).await?;
        let sql = format!(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) \
             SET claim = NULL, rescues = rescues + 1, failed = failed OR {} WHERE seq IN ({})",
            claim.alone,
            list(part)
        );
        execute(tx, sql).await?;
    }
    if claim.alone {
        let at = now(tx).await?;
        count_lost(tx, claim, &seqs, at).await?;
    }
    Ok(seqs.len() as u64)
}

/// Messages that were sent elsewhere by hand while they were claimed.
async fn follow_elsewhere(tx: &mut MySqlConnection, seqs: &[i64]) -> Result<(), Error> {
    // Read and then written: an UPDATE with a join would lock the messages too.
    let sql = format!(
        "SELECT d.seq, m.integration_type \
         FROM outbox_delivery AS d JOIN integration_outbox AS m ON m.seq = d.seq \
         WHERE d.seq IN ({}) AND m.integration_type <> d.integration",
        list(seqs)
    );
    for row in fetch(tx, sql).await? {
        sqlx::query(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET integration = ? WHERE seq = ?",
        )
        .bind(row.try_get::<String, _>(1)?)
        .bind(row.try_get::<i64, _>(0)?)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

/// Lost alone, it was this message: that counts as an attempt.
async fn count_lost(
    tx: &mut MySqlConnection,
    claim: &Expired,
    seqs: &[i64],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let error = format!(
        "lost with its relay: the claim of {} expired while it handled this message alone",
        claim.worker
    );
    for seq in seqs {
        sqlx::query(
            "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
             SET status = 'FAILED', attempts = LEAST(CAST(attempts AS SIGNED) + 1, 2147483647), \
                 last_error = ?, updated_at = ?, settled = ? \
             WHERE seq = ?",
        )
        .bind(&error)
        .bind(at)
        .bind(Token::random().0)
        .bind(seq)
        .execute(&mut *tx)
        .await?;
    }
    let lost = |seq: &i64| Failure {
        seq: *seq,
        took: Duration::ZERO,
        outcome: AttemptOutcome::Lost,
        error: &error,
    };
    attempts::record(tx, &seqs.iter().map(lost).collect::<Vec<_>>(), at).await
}
