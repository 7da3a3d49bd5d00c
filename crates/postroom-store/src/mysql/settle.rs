//! Settling: fenced by a claim's token or a dispatch's number, all of a call in one transaction.

use super::attempts::{self, Failure};
use super::claims::{literal, literals, micros};
use super::error::{enqueue_error, store_error};
use super::follow::{follow, lock_alike};
use super::locked::{LetThrough, let_through};
use super::version::Locking;
use super::{LIST, MySqlStore, delete, execute, fetch, list, now, numbers, statements};
use chrono::{NaiveDateTime, TimeDelta};
use postroom_core::{
    AttemptOutcome, Fate, Fence, Settled, Settlement, StoreResult, Token, Verdict, clip_error,
};
use sqlx::{Error, MySql, MySqlConnection, QueryBuilder};
use std::collections::HashSet;
use std::time::Duration;

const DOING: &str = "recording outcomes";

pub(super) async fn settle(store: &MySqlStore, settlements: &[Settlement]) -> StoreResult<Settled> {
    let mut settled = Settled::default();
    if settlements.is_empty() {
        return Ok(settled);
    }
    let failed = |error| store_error(DOING, error);
    let locking = store.locking().await.map_err(failed)?;
    let mut tx = store.begin().await.map_err(failed)?;
    lock_finished(&mut tx, settlements).await.map_err(failed)?;
    let at = now(&mut tx).await.map_err(failed)?;
    for settlement in settlements {
        let held = let_through(&mut tx, settlement, locking).await.map_err(failed)?;
        apply(&mut tx, settlement, &held, at, store.keep_sent).await.map_err(failed)?;
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
                && held.free.contains(&verdict.seq)
            {
                let announcement = (**announcement).clone();
                postroom::enqueue(&mut *tx, announcement).await.map_err(enqueue_error)?;
            }
        }
        settled.late.extend(late(&mut tx, settlement, &held).await.map_err(failed)?);
        settled.locked.extend(held.locked);
    }
    tx.commit().await.map_err(failed)?;
    Ok(settled)
}

/// Claims come before deliveries in the order of locks, so those that are about to go are locked
/// first.
async fn lock_finished(tx: &mut MySqlConnection, settlements: &[Settlement]) -> Result<(), Error> {
    let tokens: Vec<Token> = settlements.iter().filter_map(finished).collect();
    for part in tokens.chunks(LIST) {
        let sql = format!(
            "SELECT token FROM outbox_claim WHERE token IN ({}) ORDER BY token FOR UPDATE",
            literals(part)
        );
        fetch(tx, sql).await?;
    }
    Ok(())
}

/// The claim that ends with a settlement.
fn finished(settlement: &Settlement) -> Option<Token> {
    match settlement.fence {
        Fence::Claim(token) => settlement.finished.then_some(token),
        Fence::Dispatch { .. } => None,
    }
}

/// Applies one settlement to what is free.
async fn apply(
    tx: &mut MySqlConnection,
    settlement: &Settlement,
    held: &LetThrough,
    at: NaiveDateTime,
    keep_sent: bool,
) -> Result<(), Error> {
    let token = settlement.fence.token();
    let chosen = |wanted: fn(&Fate) -> bool| -> Vec<i64> {
        settlement
            .verdicts
            .iter()
            .filter(|verdict| held.free.contains(&verdict.seq) && wanted(&verdict.fate))
            .map(|verdict| verdict.seq)
            .collect()
    };
    let sent = chosen(|fate| matches!(fate, Fate::Sent));
    for part in sent.chunks(LIST) {
        mark_sent(tx, token, part, at, keep_sent).await?;
    }
    let mut released = chosen(|fate| matches!(fate, Fate::Released));
    let postponed: Vec<(i64, NaiveDateTime)> = settlement
        .verdicts
        .iter()
        .filter(|verdict| held.free.contains(&verdict.seq))
        .filter_map(|verdict| match verdict.fate {
            Fate::Postponed { delay } => Some((verdict.seq, due_after(at, delay))),
            _ => None,
        })
        .collect();
    for part in postponed.chunks(LIST) {
        released.extend(put_off(tx, settlement.fence, part, at).await?);
    }
    for part in released.chunks(LIST) {
        let sql = format!(
            "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = NULL{} WHERE seq IN ({})",
            ends_dispatch(settlement.fence),
            list(part)
        );
        execute(tx, sql).await?;
        follow(tx, part, Locking::Wait).await?;
    }
    let failed: Vec<Failed<'_>> = settlement
        .verdicts
        .iter()
        .filter(|verdict| held.free.contains(&verdict.seq))
        .filter_map(|verdict| Failed::of(verdict, at))
        .collect();
    for part in failed.chunks(LIST) {
        mark_failed(tx, settlement.fence, part, at).await?;
    }
    // A claim with a locked message still holds something.
    if let Some(token) = finished(settlement)
        && held.locked.is_empty()
    {
        sqlx::query(statements::FORGET_CLAIM).bind(token.0).bind(token.0).execute(&mut *tx).await?;
    }
    Ok(())
}

/// What else a verdict that does not end the delivery sets.
fn ends_dispatch(fence: Fence) -> &'static str {
    match fence {
        Fence::Claim(_) => "",
        Fence::Dispatch { .. } => ", dispatch = dispatch + 1",
    }
}

async fn mark_sent(
    tx: &mut MySqlConnection,
    token: Token,
    seqs: &[i64],
    at: NaiveDateTime,
    keep_sent: bool,
) -> Result<(), Error> {
    delete(tx, "outbox_delivery", seqs).await?;
    if !keep_sent {
        delete(tx, "integration_outbox", seqs).await?;
        return attempts::forget(tx, seqs).await;
    }
    let sql = format!(
        "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
         SET status = 'SENT', sent_at = '{at}', updated_at = '{at}', settled = {} \
         WHERE seq IN ({})",
        literal(token),
        list(seqs)
    );
    execute(tx, sql).await.map(|_| ())
}

fn due_after(at: NaiveDateTime, delay: Duration) -> NaiveDateTime {
    at + TimeDelta::microseconds(micros(delay))
}

/// Postpones deliveries that their messages still agree with, until the time beside each; the
/// others, which were changed by hand.
async fn put_off(
    tx: &mut MySqlConnection,
    fence: Fence,
    postponed: &[(i64, NaiveDateTime)],
    at: NaiveDateTime,
) -> Result<Vec<i64>, Error> {
    let all: Vec<i64> = postponed.iter().map(|(seq, _)| *seq).collect();
    let alike: HashSet<i64> = lock_alike(tx, &all).await?.into_iter().collect();
    let (alike, changed): (Vec<i64>, Vec<i64>) =
        all.into_iter().partition(|seq| alike.contains(seq));
    if alike.is_empty() {
        return Ok(changed);
    }
    let mut due_at = String::new();
    for (seq, until) in postponed {
        due_at.push_str(&format!(" WHEN {seq} THEN '{until}'"));
    }
    let seqs = list(&alike);
    let sql = format!(
        "UPDATE outbox_delivery FORCE INDEX (PRIMARY) \
         SET claim = NULL, due_at = CASE seq{due_at} END{} WHERE seq IN ({seqs})",
        ends_dispatch(fence)
    );
    execute(tx, sql).await?;
    // A fresh token each time: no earlier settlement can pass for this one.
    let sql = format!(
        "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
         SET due_at = CASE seq{due_at} END, updated_at = '{at}', settled = {} \
         WHERE seq IN ({seqs})",
        literal(Token::random())
    );
    execute(tx, sql).await?;
    Ok(changed)
}

/// A message that was not accepted: due again, or dead.
struct Failed<'a> {
    seq: i64,
    /// When it is due again; `None` when it is dead.
    due_at: Option<NaiveDateTime>,
    error: &'a str,
    tried: Option<(AttemptOutcome, Duration)>,
}

impl<'a> Failed<'a> {
    fn of(verdict: &'a Verdict, at: NaiveDateTime) -> Option<Self> {
        let seq = verdict.seq;
        match &verdict.fate {
            Fate::Failed { delay, error, took } => {
                let due_at = due_after(at, *delay);
                let tried = Some((AttemptOutcome::Retry, *took));
                Some(Self { seq, due_at: Some(due_at), error, tried })
            }
            Fate::Dead { error, tried, .. } => {
                let tried = tried.map(|tried| (tried.outcome, tried.took));
                Some(Self { seq, due_at: None, error, tried })
            }
            Fate::Sent | Fate::Released | Fate::Postponed { .. } => None,
        }
    }
}

/// Frees the deliveries, marks the messages, and puts the attempts on record: a statement each,
/// however many there are.
async fn mark_failed(
    tx: &mut MySqlConnection,
    fence: Fence,
    failed: &[Failed<'_>],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let seqs = list(&failed.iter().map(|one| one.seq).collect::<Vec<_>>());
    // The dead keep the time at which they were due.
    let due_at = by_seq(failed, "due_at", |one| one.due_at.map(|due_at| format!("'{due_at}'")));
    let dead = by_seq(failed, "TRUE", |one| one.due_at.map(|_| "FALSE".to_owned()));
    let again = by_seq(failed, "FALSE", |one| one.due_at.map(|_| "TRUE".to_owned()));
    let sql = format!(
        "UPDATE outbox_delivery FORCE INDEX (PRIMARY) \
         SET claim = NULL, rescues = 0, due_at = {due_at}, dead = {dead}, failed = {again}{} \
         WHERE seq IN ({seqs})",
        ends_dispatch(fence)
    );
    execute(tx, sql).await?;

    let status = by_seq(failed, "'DEAD'", |one| one.due_at.map(|_| "'FAILED'".to_owned()));
    let attempts = attempts(fence, &by_seq(failed, "0", |one| one.tried.map(|_| "1".to_owned())));
    // A count set by hand to the end of its type must not stop everyone else's outcome.
    let mut update: QueryBuilder<MySql> = QueryBuilder::new(format!(
        "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
         SET status = {status}, due_at = {due_at}, updated_at = '{at}', settled = {}, \
             attempts = LEAST({attempts}, 2147483647), \
             last_error = CASE seq ",
        literal(fence.token())
    ));
    for one in failed {
        update.push(format!("WHEN {} THEN ", one.seq)).push_bind(clip_error(one.error)).push(" ");
    }
    update.push(format!("END WHERE seq IN ({seqs})"));
    update.build().persistent(false).execute(&mut *tx).await?;

    let failures: Vec<Failure<'_>> = failed
        .iter()
        .filter_map(|one| {
            let (outcome, took) = one.tried?;
            Some(Failure { seq: one.seq, took, outcome, error: one.error })
        })
        .collect();
    attempts::record(tx, &failures, at).await
}

/// How many attempts have failed once `more` are counted. An external worker may have counted its
/// attempt in the row itself.
fn attempts(fence: Fence, more: &str) -> String {
    match fence {
        Fence::Dispatch { failed_before: Some(before), .. } => {
            format!("GREATEST(CAST(attempts AS SIGNED), {before} + {more})")
        }
        Fence::Claim(_) | Fence::Dispatch { .. } => {
            format!("CAST(attempts AS SIGNED) + {more}")
        }
    }
}

/// A value that depends on the message; `otherwise` where there is none.
fn by_seq(
    failed: &[Failed<'_>],
    otherwise: &str,
    value: impl Fn(&Failed<'_>) -> Option<String>,
) -> String {
    let mut cases = String::new();
    for one in failed {
        if let Some(value) = value(one) {
            cases.push_str(&format!(" WHEN {} THEN {value}", one.seq));
        }
    }
    if cases.is_empty() {
        otherwise.to_owned()
    } else {
        format!("CASE seq{cases} ELSE {otherwise} END")
    }
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its outcome was unknown, and it is repeated.
async fn late(
    tx: &mut MySqlConnection,
    settlement: &Settlement,
    held: &LetThrough,
) -> Result<Vec<i64>, Error> {
    let mut unchanged: Vec<i64> = settlement.verdicts.iter().map(|verdict| verdict.seq).collect();
    unchanged.retain(|seq| !held.free.contains(seq) && !held.locked.contains(seq));
    let mut known = HashSet::new();
    for part in unchanged.chunks(LIST) {
        let sql = format!(
            "SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) \
             WHERE seq IN ({}) AND settled = {}",
            list(part),
            literal(settlement.fence.token())
        );
        known.extend(numbers(tx, sql).await?);
    }
    unchanged.retain(|seq| !known.contains(seq));
    Ok(unchanged)
}
