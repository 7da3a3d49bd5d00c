//! Settling: fenced by a claim's token or a dispatch's number, all of a call in one transaction.
//!
//! A claim on parcels is told from one on deliveries by its row. That costs no round trip here, and what
//! it names is needed anyway.

use super::error::{enqueue_error, store_error};
use super::json_lists::{ids, json_ids};
use super::parcels::FOLLOW;
use super::row::optional_text;
use super::session::Session;
use super::time::{later, now_ms, text};
use super::{History, SqliteStore, attempts, claims, prune, settle_parcels};
use postroom_core::{
    AttemptOutcome, Fate, Fence, MessageId, Settled, Settlement, StoreResult, Token, Tried,
    Verdict, clip_error,
};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Sqlite};
use std::collections::HashSet;
use std::time::Duration;

const CLAIM: &str = include_str!("sql/claim.sql");
pub(super) const MARK_SENT: &str = include_str!("sql/mark_sent.sql");
pub(super) const DELETE_MESSAGES: &str = include_str!("sql/delete_messages.sql");
pub(super) const MARK_FAILED: &str = include_str!("sql/mark_failed.sql");
pub(super) const MARK_PUT_OFF: &str = include_str!("sql/mark_put_off.sql");
pub(super) const FORGET_CLAIM: &str = include_str!("sql/forget_claim.sql");
pub(super) const THERE: &str = include_str!("sql/there.sql");
pub(super) const ALREADY_SETTLED: &str = include_str!("sql/already_settled.sql");

const DOING: &str = "recording outcomes";

/// The statements that change deliveries by a fence, which is `?1`: what they do not let through was lost to
/// another relay, or is another dispatch's.
pub(super) struct Fenced {
    pub(super) sent: &'static str,
    pub(super) released: &'static str,
    pub(super) postponed: &'static str,
    pub(super) failed: &'static str,
}

pub(super) const BY_CLAIM: Fenced = Fenced {
    sent: include_str!("sql/settle_sent.sql"),
    released: include_str!("sql/settle_released.sql"),
    postponed: include_str!("sql/settle_postponed.sql"),
    failed: include_str!("sql/settle_failed.sql"),
};

pub(super) const BY_DISPATCH: Fenced = Fenced {
    sent: include_str!("sql/settle_dispatch_sent.sql"),
    released: include_str!("sql/settle_dispatch_released.sql"),
    postponed: include_str!("sql/settle_dispatch_postponed.sql"),
    failed: include_str!("sql/settle_dispatch_failed.sql"),
};

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
            apply(&mut tx, settlement, store.history).await.map_err(|e| store_error(DOING, e))?;
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate
                && changed.contains(&verdict.id)
            {
                let announcement = (**announcement).clone();
                postroom::enqueue(tx.connection(), announcement).await.map_err(enqueue_error)?;
            }
        }
        let late = late(&mut tx, settlement, &changed).await.map_err(|e| store_error(DOING, e))?;
        settled.late.extend(late);
    }
    tx.commit().await.map_err(|e| store_error(DOING, e))?;
    Ok(settled)
}

/// Applies one settlement; the messages that it changed.
async fn apply(
    tx: &mut Session,
    settlement: &Settlement,
    history: History,
) -> Result<HashSet<MessageId>, Error> {
    let fence = settlement.fence;
    let writing = Writing { token: fence.token(), now: now_ms(), history };
    if let Fence::Claim(token) = fence {
        let claim = sqlx::query(CLAIM).bind(token.0.to_string()).fetch_optional(&mut *tx).await?;
        let parcels = claim.map(|row| optional_text(&row, 0)).transpose()?.flatten();
        if let Some(parcels) = parcels {
            return settle_parcels::apply(tx, settlement, &parcels, writing).await;
        }
    }
    let changed = apply_to_deliveries(tx, settlement, writing).await?;
    if let Fence::Claim(token) = fence
        && settlement.finished
    {
        sqlx::query(FORGET_CLAIM).bind(token.0.to_string()).execute(&mut *tx).await?;
    }
    Ok(changed)
}

async fn apply_to_deliveries(
    tx: &mut Session,
    settlement: &Settlement,
    writing: Writing,
) -> Result<HashSet<MessageId>, Error> {
    let fence = settlement.fence;
    let mut changed = HashSet::new();
    let sent = of(settlement, |fate| matches!(fate, Fate::Sent));
    if !sent.is_empty() {
        let ended = let_through(tx, statements(fence).sent, fence, &sent).await?;
        changed.extend(writing.mark_sent(tx, &ended).await?);
    }
    let mut released = of(settlement, |fate| matches!(fate, Fate::Released));
    for verdict in &settlement.verdicts {
        if let Fate::Postponed { delay } = verdict.fate {
            if put_off(tx, fence, &verdict.id, delay, writing).await? {
                changed.insert(verdict.id.clone());
            } else {
                // Changed by hand, unless it was lost.
                released.push(verdict.id.clone());
            }
        }
    }
    if !released.is_empty() {
        let freed = let_through(tx, statements(fence).released, fence, &released).await?;
        let freed = json_ids(&freed);
        sqlx::query(FOLLOW).bind(&freed).execute(&mut *tx).await?;
        sqlx::query(claims::FORGET_CLOSED).bind(&freed).execute(&mut *tx).await?;
        changed.extend(there(tx, &freed).await?);
    }
    for verdict in &settlement.verdicts {
        let Some(failure) = Failure::of(&verdict.fate) else { continue };
        let freed = fenced(statements(fence).failed, fence)
            .bind(verdict.id.to_string())
            .bind(writing.due_at(&failure))
            .execute(&mut *tx)
            .await?;
        if freed.rows_affected() == 0 {
            continue;
        }
        if writing.mark_failed(tx, &verdict.id, &failure, failed_before(fence)).await? {
            changed.insert(verdict.id.clone());
        } else {
            // The message was deleted meanwhile.
            let id = json_ids([&verdict.id]);
            sqlx::query(claims::FORGET_CLOSED).bind(id).execute(&mut *tx).await?;
        }
    }
    Ok(changed)
}

/// The messages with such a fate.
pub(super) fn of(settlement: &Settlement, wanted: impl Fn(&Fate) -> bool) -> Vec<MessageId> {
    let verdicts = settlement.verdicts.iter().filter(|verdict| wanted(&verdict.fate));
    verdicts.map(|verdict| verdict.id.clone()).collect()
}

fn statements(fence: Fence) -> Fenced {
    match fence {
        Fence::Claim(_) => BY_CLAIM,
        Fence::Dispatch { .. } => BY_DISPATCH,
    }
}

/// A fenced statement, with its fence.
fn fenced(statement: &'static str, fence: Fence) -> Query<'static, Sqlite, SqliteArguments> {
    match fence {
        Fence::Claim(token) => sqlx::query(statement).bind(token.0.to_string()),
        Fence::Dispatch { number, .. } => sqlx::query(statement).bind(i64::from(number) - 1),
    }
}

/// Runs a statement on the deliveries that the fence lets through; their messages.
async fn let_through(
    tx: &mut Session,
    statement: &'static str,
    fence: Fence,
    of: &[MessageId],
) -> Result<Vec<MessageId>, Error> {
    ids(&fenced(statement, fence).bind(json_ids(of)).fetch_all(&mut *tx).await?)
}

/// Which of these messages exist.
pub(super) async fn there(tx: &mut Session, of: &str) -> Result<Vec<MessageId>, Error> {
    ids(&sqlx::query(THERE).bind(of).fetch_all(tx).await?)
}

/// Postpones a delivery that its message still agrees with.
async fn put_off(
    tx: &mut Session,
    fence: Fence,
    id: &MessageId,
    delay: Duration,
    writing: Writing,
) -> Result<bool, Error> {
    let due_at = later(writing.now, delay);
    let freed = fenced(statements(fence).postponed, fence)
        .bind(id.to_string())
        .bind(due_at)
        .execute(&mut *tx)
        .await?;
    if freed.rows_affected() == 0 {
        return Ok(false);
    }
    writing.mark_put_off(tx, id, due_at).await?;
    Ok(true)
}

/// How many attempts had failed before a dispatch, where that is known.
fn failed_before(fence: Fence) -> Option<i64> {
    match fence {
        Fence::Claim(_) => None,
        Fence::Dispatch { failed_before, .. } => failed_before.map(i64::from),
    }
}

/// A fate that says why a message was not delivered.
pub(super) struct Failure<'a> {
    /// Until it is due again; none when it is dead.
    delay: Option<Duration>,
    error: &'a str,
    tried: Option<Tried>,
}

impl<'a> Failure<'a> {
    pub(super) fn of(fate: &'a Fate) -> Option<Self> {
        match fate {
            Fate::Failed { delay, error, took } => {
                let tried = Tried { outcome: AttemptOutcome::Retry, took: *took };
                Some(Self { delay: Some(*delay), error, tried: Some(tried) })
            }
            Fate::Dead { error, tried, .. } => Some(Self { delay: None, error, tried: *tried }),
            Fate::Sent | Fate::Released | Fate::Postponed { .. } => None,
        }
    }
}

/// What a settlement writes to messages. The ledger comes first: the trigger would take it for a change by
/// hand otherwise.
#[derive(Clone, Copy)]
pub(super) struct Writing {
    pub(super) token: Token,
    pub(super) now: i64,
    history: History,
}

impl Writing {
    /// When a message that failed is due again; never, when it is dead.
    pub(super) fn due_at(self, failure: &Failure<'_>) -> Option<i64> {
        failure.delay.map(|delay| later(self.now, delay))
    }

    /// Marks messages SENT, or deletes them; those that were there.
    pub(super) async fn mark_sent(
        self,
        tx: &mut Session,
        sent: &[MessageId],
    ) -> Result<Vec<MessageId>, Error> {
        if self.history.keep_sent {
            let marked = sqlx::query(MARK_SENT)
                .bind(self.token.0.to_string())
                .bind(json_ids(sent))
                .bind(text(self.now))
                .fetch_all(&mut *tx)
                .await?;
            return ids(&marked);
        }
        prune::delete(tx, sent, self.history.remember_events).await
    }

    /// Marks a message FAILED or DEAD, and keeps the attempt; whether it was there.
    pub(super) async fn mark_failed(
        self,
        tx: &mut Session,
        id: &MessageId,
        failure: &Failure<'_>,
        failed_before: Option<i64>,
    ) -> Result<bool, Error> {
        let marked = sqlx::query(MARK_FAILED)
            .bind(self.token.0.to_string())
            .bind(id.to_string())
            .bind(self.due_at(failure).map(text))
            .bind(i64::from(failure.tried.is_some()))
            .bind(clip_error(failure.error))
            .bind(text(self.now))
            .bind(failed_before)
            .fetch_optional(&mut *tx)
            .await?;
        let is_there = marked.is_some();
        if let Some(tried) = failure.tried.filter(|_| is_there) {
            attempts::note(tx, id, tried, failure.error, self.now).await?;
        }
        Ok(is_there)
    }

    /// Writes another due time. A fresh token each time: no earlier settlement can pass for this one.
    pub(super) async fn mark_put_off(
        self,
        tx: &mut Session,
        id: &MessageId,
        due_at: i64,
    ) -> Result<(), Error> {
        sqlx::query(MARK_PUT_OFF)
            .bind(Token::random().0.to_string())
            .bind(id.to_string())
            .bind(text(due_at))
            .bind(text(self.now))
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its outcome was unknown, and it is repeated.
async fn late(
    tx: &mut Session,
    settlement: &Settlement,
    changed: &HashSet<MessageId>,
) -> Result<Vec<i64>, Error> {
    let mut unchanged: Vec<&Verdict> = settlement.verdicts.iter().collect();
    unchanged.retain(|verdict| !changed.contains(&verdict.id));
    if unchanged.is_empty() {
        return Ok(Vec::new());
    }
    let known = sqlx::query(ALREADY_SETTLED)
        .bind(settlement.fence.token().0.to_string())
        .bind(json_ids(unchanged.iter().map(|verdict| &verdict.id)))
        .fetch_all(&mut *tx)
        .await?;
    let known: HashSet<MessageId> = ids(&known)?.into_iter().collect();
    unchanged.retain(|verdict| !known.contains(&verdict.id));
    Ok(unchanged.iter().map(|verdict| verdict.seq).collect())
}
