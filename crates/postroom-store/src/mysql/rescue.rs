//! Freeing what expired claims hold. Lock order: relay, claim, delivery, message.

use super::attempts::{self, Failure};
use super::claims::{literal, literals};
use super::follow::{follow, lock_messages};
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, list, now, numbers, row, statements};
use postroom_core::{AttemptOutcome, RelayId, Token};
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

/// A claim that has expired.
struct Expired {
    token: Token,
    worker: String,
    alone: bool,
    dispatched: bool,
    held: Duration,
}

/// Waits for nobody where the server can: a delivery that is locked is being settled, a message
/// that is locked is being changed, and both are left for the next time, with their claim. Rows are found first and locked by their key then:
/// to lock them by another index is to lock that first, and a settlement comes the other way.
pub(super) async fn rescue(
    store: &MySqlStore,
    asking: RelayId,
    limit: usize,
) -> Result<u64, Error> {
    loop {
        let (freed, ended) = rescue_some(store, asking, limit).await?;
        // Behind claims that held nothing there may be one that does.
        if freed > 0 || ended == 0 {
            return Ok(freed);
        }
    }
}

/// How many messages were freed, and how many claims ended.
async fn rescue_some(
    store: &MySqlStore,
    asking: RelayId,
    limit: usize,
) -> Result<(u64, u64), Error> {
    let expired = format!("{} LIMIT {limit}", statements::EXPIRED);
    let expired = sqlx::query(AssertSqlSafe(expired)).bind(asking.0);
    let (mut tokens, mut relays) = (Vec::new(), HashSet::new());
    for row in expired.fetch_all(&store.pool).await? {
        tokens.push(Token(row.try_get::<Uuid, _>(0)?));
        relays.insert(row.try_get::<Uuid, _>(1)?);
    }
    if tokens.is_empty() {
        return Ok((0, 0));
    }
    let locking = store.locking().await?;
    let mut tx = store.begin().await?;
    let alive = lock_relays(&mut tx, relays).await?;
    let (mut freed, mut ended) = (0, 0);
    for part in tokens.chunks(LIST) {
        let sql = format!(
            "SELECT token, worker, alone, \
                    GREATEST(0, TIMESTAMPDIFF(MICROSECOND, since, COALESCE( \
                        (SELECT r.until FROM outbox_relay AS r WHERE r.id = c.relay), \
                        UTC_TIMESTAMP(6)))), \
                    dispatched \
             FROM outbox_claim AS c FORCE INDEX (PRIMARY) \
             WHERE token IN ({}) AND relay NOT IN ({alive}) {}",
            literals(part),
            locking.clause()
        );
        for row in fetch(&mut tx, sql).await? {
            let token = Token(row.try_get::<Uuid, _>(0)?);
            let held = Duration::from_micros(row::count(&row, 3)?);
            let claim = Expired {
                token,
                worker: row.try_get(1)?,
                alone: row.try_get(2)?,
                dispatched: row.try_get(4)?,
                held,
            };
            freed += free(&mut tx, &claim, locking).await?;
            let forgotten = sqlx::query(statements::FORGET_CLAIM)
                .bind(claim.token.0)
                .bind(claim.token.0)
                .execute(&mut *tx)
                .await?;
            ended += forgotten.rows_affected();
        }
    }
    tx.commit().await?;
    Ok((freed, ended))
}

/// Locks the rows of these relays, and says which of them live after all. A relay that comes back
/// waits for this to end, and then sees what it has lost. Others that rescue do not wait.
async fn lock_relays(tx: &mut MySqlConnection, relays: HashSet<Uuid>) -> Result<String, Error> {
    let mut relays: Vec<Token> = relays.into_iter().map(Token).collect();
    relays.sort_unstable();
    let mut alive = Vec::new();
    for part in relays.chunks(LIST) {
        let sql = format!(
            "SELECT id, until >= UTC_TIMESTAMP(6) FROM outbox_relay FORCE INDEX (PRIMARY) \
             WHERE id IN ({}) LOCK IN SHARE MODE",
            literals(part)
        );
        for row in fetch(tx, sql).await? {
            if row.try_get(1)? {
                alive.push(Token(row.try_get::<Uuid, _>(0)?));
            }
        }
    }
    Ok(if alive.is_empty() { "''".to_owned() } else { literals(&alive) })
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
        let deliveries = numbers(tx, sql).await?;
        seqs.extend(unchanging(tx, deliveries, locking).await?);
    }
    for part in seqs.chunks(LIST) {
        let sql = format!(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) \
             SET claim = NULL, rescues = rescues + {} WHERE seq IN ({})",
            i32::from(!claim.dispatched),
            list(part)
        );
        execute(tx, sql).await?;
    }
    if claim.alone {
        count_lost(tx, claim, &seqs).await?;
    }
    follow(tx, &seqs, Locking::Wait).await?;
    Ok(seqs.len() as u64)
}

/// Locks the messages, so that no change to them is missed, and leaves out those that someone is
/// changing. Of a message that was deleted there is nothing to lock, and nothing to wait for.
async fn unchanging(
    tx: &mut MySqlConnection,
    mut seqs: Vec<i64>,
    locking: Locking,
) -> Result<Vec<i64>, Error> {
    let sql = format!(
        "SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({})",
        list(&seqs)
    );
    let there = numbers(tx, sql).await?;
    let locked = lock_messages(tx, &seqs, locking).await?;
    seqs.retain(|seq| locked.contains(seq) || !there.contains(seq));
    Ok(seqs)
}

/// Lost alone, it was this message: that counts as an attempt, unless it was closed meanwhile.
async fn count_lost(tx: &mut MySqlConnection, claim: &Expired, seqs: &[i64]) -> Result<(), Error> {
    let at = now(tx).await?;
    let error = format!(
        "lost with its relay: the claim of {} expired while it handled this message alone",
        claim.worker
    );
    let mut lost = Vec::new();
    for seq in seqs {
        let counted = sqlx::query(
            "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
             SET status = 'FAILED', attempts = LEAST(CAST(attempts AS SIGNED) + 1, 2147483647), \
                 last_error = ?, updated_at = ?, settled = ? \
             WHERE seq = ? AND status IN ('PENDING', 'FAILED')",
        )
        .bind(&error)
        .bind(at)
        .bind(Token::random().0)
        .bind(seq)
        .execute(&mut *tx)
        .await?;
        if counted.rows_affected() == 1 {
            let outcome = AttemptOutcome::Lost;
            lost.push(Failure { seq: *seq, took: claim.held, outcome, error: &error });
        }
    }
    attempts::record(tx, &lost, at).await
}
