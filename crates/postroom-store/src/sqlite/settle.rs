//! Settling: fenced by a claim's token or a dispatch's number, all of a call in one transaction.

use super::claims::json;
use super::error::{enqueue_error, store_error};
use super::time::{later, now_ms, text};
use super::{SqliteStore, attempts, statements};
use postroom_core::{
    AttemptOutcome, Fate, Fence, Settled, Settlement, StoreResult, Token, Tried, Verdict,
    clip_error,
};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Row as _, Sqlite, SqliteConnection};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

const DOING: &str = "recording outcomes";

pub(super) async fn settle(
    store: &SqliteStore,
    settlements: &[Settlement],
) -> StoreResult<Settled> {
    let mut settled = Settled::default();
    if settlements.is_empty() {
        return Ok(settled);
    }
    let mut tx = store.begin(DOING).await?;
    for settlement in settlements {
        let changed =
            apply(&mut tx, settlement, store.keep_sent).await.map_err(|e| store_error(DOING, e))?;
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
                && changed.contains(&verdict.seq)
            {
                let announcement = (**announcement).clone();
                postroom::enqueue(&mut tx, announcement).await.map_err(enqueue_error)?;
            }
        }
        let late = late(&mut tx, settlement, &changed).await.map_err(|e| store_error(DOING, e))?;
        settled.late.extend(late);
    }
    tx.commit().await.map_err(|e| store_error(DOING, e))?;
    Ok(settled)
}

/// Applies one settlement; what it changed, by number.
async fn apply(
    tx: &mut SqliteConnection,
    settlement: &Settlement,
    keep_sent: bool,
) -> Result<HashSet<i64>, Error> {
    let fence = settlement.fence;
    let now = now_ms();
    let mut changed = HashSet::new();
    let others = match fence {
        // Its token tells messages apart that had the same number.
        Fence::Claim(_) => HashSet::new(),
        Fence::Dispatch { .. } => {
            let meant = settlement.verdicts.iter().map(|verdict| (verdict.seq, verdict.id));
            others(tx, meant).await?
        }
    };
    let verdicts: Vec<&Verdict> =
        settlement.verdicts.iter().filter(|verdict| !others.contains(&verdict.seq)).collect();
    let sent = numbers(&verdicts, |fate| matches!(fate, Fate::Sent));
    if !sent.is_empty() {
        changed.extend(mark_sent(tx, fence, &sent, now, keep_sent).await?);
    }
    let mut released = numbers(&verdicts, |fate| matches!(fate, Fate::Released));
    for verdict in &verdicts {
        if let Fate::Postponed { delay } = verdict.fate {
            if put_off(tx, fence, verdict.seq, delay, now).await? {
                changed.insert(verdict.seq);
            } else {
                // Changed by hand, unless it was lost.
                released.push(verdict.seq);
            }
        }
    }
    if !released.is_empty() {
        let freed = let_through(tx, statements(fence).release, fence, &released).await?;
        sqlx::query(statements::FOLLOW).bind(json(&freed)).execute(&mut *tx).await?;
        changed.extend(freed);
    }
    for verdict in &verdicts {
        let is_changed = match &verdict.fate {
            Fate::Failed { delay, error, took } => {
                mark_failed(tx, fence, verdict.seq, *delay, error, *took, now).await?
            }
            Fate::Dead { error, tried, .. } => {
                mark_dead(tx, fence, verdict.seq, *tried, error, now).await?
            }
            Fate::Sent | Fate::Released | Fate::Postponed { .. } => continue,
        };
        if is_changed {
            changed.insert(verdict.seq);
        }
    }
    if let Fence::Claim(token) = fence
        && settlement.finished
    {
        sqlx::query(statements::FORGET_CLAIM).bind(token.0.to_string()).execute(&mut *tx).await?;
    }
    Ok(changed)
}

/// Which numbers belong to other messages by now than they were meant for.
pub(super) async fn others(
    tx: &mut SqliteConnection,
    meant: impl Iterator<Item = (i64, Uuid)>,
) -> Result<HashSet<i64>, Error> {
    let meant: Vec<serde_json::Value> =
        meant.map(|(seq, id)| serde_json::json!([seq, id])).collect();
    let others: Vec<i64> =
        sqlx::query_scalar(statements::OTHERS).bind(json(&meant)).fetch_all(&mut *tx).await?;
    Ok(others.into_iter().collect())
}

fn numbers(verdicts: &[&Verdict], wanted: impl Fn(&Fate) -> bool) -> Vec<i64> {
    verdicts.iter().filter(|verdict| wanted(&verdict.fate)).map(|verdict| verdict.seq).collect()
}

fn statements(fence: Fence) -> statements::Fenced {
    match fence {
        Fence::Claim(_) => statements::BY_CLAIM,
        Fence::Dispatch { .. } => statements::BY_DISPATCH,
    }
}

/// A fenced statement, with its fence.
fn fenced(statement: &'static str, fence: Fence) -> Query<'static, Sqlite, SqliteArguments> {
    match fence {
        Fence::Claim(token) => sqlx::query(statement).bind(token.0.to_string()),
        Fence::Dispatch { number, .. } => sqlx::query(statement).bind(i64::from(number) - 1),
    }
}

/// Runs a statement on the deliveries that the fence lets through; their numbers.
async fn let_through(
    tx: &mut SqliteConnection,
    statement: &'static str,
    fence: Fence,
    seqs: &[i64],
) -> Result<Vec<i64>, Error> {
    let rows = fenced(statement, fence).bind(json(seqs)).fetch_all(&mut *tx).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn mark_sent(
    tx: &mut SqliteConnection,
    fence: Fence,
    seqs: &[i64],
    now: i64,
    keep_sent: bool,
) -> Result<Vec<i64>, Error> {
    let ended = let_through(tx, statements(fence).end_sent, fence, seqs).await?;
    if keep_sent {
        sqlx::query(statements::MARK_SENT)
            .bind(fence.token().0.to_string())
            .bind(json(&ended))
            .bind(text(now))
            .execute(&mut *tx)
            .await?;
    } else {
        sqlx::query(statements::DELETE_MESSAGES).bind(json(&ended)).execute(&mut *tx).await?;
        attempts::forget(tx, &ended).await?;
    }
    Ok(ended)
}

/// Postpones a delivery that its message still agrees with.
async fn put_off(
    tx: &mut SqliteConnection,
    fence: Fence,
    seq: i64,
    delay: Duration,
    now: i64,
) -> Result<bool, Error> {
    let due_at = later(now, delay);
    let freed =
        fenced(statements(fence).put_off, fence).bind(seq).bind(due_at).execute(&mut *tx).await?;
    if freed.rows_affected() == 0 {
        return Ok(false);
    }
    // A fresh token each time: no earlier settlement can pass for this one.
    sqlx::query(statements::MARK_PUT_OFF)
        .bind(Token::random().0.to_string())
        .bind(seq)
        .bind(text(due_at))
        .bind(text(now))
        .execute(&mut *tx)
        .await?;
    Ok(true)
}

async fn mark_failed(
    tx: &mut SqliteConnection,
    fence: Fence,
    seq: i64,
    delay: Duration,
    error: &str,
    took: Duration,
    now: i64,
) -> Result<bool, Error> {
    let due_at = later(now, delay);
    let freed = fenced(statements(fence).free_failed, fence)
        .bind(seq)
        .bind(due_at)
        .execute(&mut *tx)
        .await?;
    if freed.rows_affected() == 0 {
        return Ok(false);
    }
    let marked = sqlx::query(statements::MARK_FAILED)
        .bind(fence.token().0.to_string())
        .bind(seq)
        .bind(text(due_at))
        .bind(clip_error(error))
        .bind(text(now))
        .bind(failed_before(fence))
        .execute(&mut *tx)
        .await?;
    // A message that was deleted meanwhile has no history.
    if marked.rows_affected() == 1 {
        let tried = Tried { outcome: AttemptOutcome::Retry, took };
        attempts::note(tx, seq, tried, error, now).await?;
    }
    Ok(true)
}

async fn mark_dead(
    tx: &mut SqliteConnection,
    fence: Fence,
    seq: i64,
    tried: Option<Tried>,
    error: &str,
    now: i64,
) -> Result<bool, Error> {
    let freed = fenced(statements(fence).free_dead, fence).bind(seq).execute(&mut *tx).await?;
    if freed.rows_affected() == 0 {
        return Ok(false);
    }
    let marked = sqlx::query(statements::MARK_DEAD)
        .bind(fence.token().0.to_string())
        .bind(seq)
        .bind(i64::from(tried.is_some()))
        .bind(clip_error(error))
        .bind(text(now))
        .bind(failed_before(fence))
        .execute(&mut *tx)
        .await?;
    if let Some(tried) = tried.filter(|_| marked.rows_affected() == 1) {
        attempts::note(tx, seq, tried, error, now).await?;
    }
    Ok(true)
}

/// How many attempts had failed before a dispatch, where that is known.
fn failed_before(fence: Fence) -> Option<i64> {
    match fence {
        Fence::Claim(_) => None,
        Fence::Dispatch { failed_before, .. } => failed_before.map(i64::from),
    }
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its outcome was unknown, and it is repeated.
async fn late(
    tx: &mut SqliteConnection,
    settlement: &Settlement,
    changed: &HashSet<i64>,
) -> Result<Vec<i64>, Error> {
    let mut unchanged: Vec<i64> = settlement.verdicts.iter().map(|verdict| verdict.seq).collect();
    unchanged.retain(|seq| !changed.contains(seq));
    if unchanged.is_empty() {
        return Ok(unchanged);
    }
    let known: Vec<i64> = sqlx::query_scalar(statements::ALREADY_SETTLED)
        .bind(settlement.fence.token().0.to_string())
        .bind(json(&unchanged))
        .fetch_all(&mut *tx)
        .await?;
    unchanged.retain(|seq| !known.contains(seq));
    Ok(unchanged)
}
