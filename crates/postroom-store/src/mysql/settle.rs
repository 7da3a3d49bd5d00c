//! Settling: fenced by a claim's token or a dispatch's number, all of a call in one transaction. Lock order:
//! claim, delivery, message.

use super::attempts::{self, Failure};
use super::claims::micros;
use super::deliveries::{self, Delivery, IfThere, Life, Recorded, Wait, recorded};
use super::error::{enqueue_error, store_error};
use super::key::Key;
use super::layout::Rows;
use super::literal::{self, filled};
use super::locked::{Counted, DeliveryRow, LetThrough, Origin, let_through};
use super::parcel::{ParcelKey, read_list};
use super::parcels::{end_parcels, held_parcels};
use super::session::Session;
use super::{LIST, MySqlStore, execute, execute_each, fetch, fetch_each, now, remembered};
use crate::parcel_token::holds_parcels;
use chrono::{NaiveDateTime, TimeDelta};
use postroom_core::{
    AttemptOutcome, Fate, Fence, MessageId, Settled, Settlement, StoreResult, Token, Verdict,
    clip_error,
};
use sqlx::{Error, MySql, QueryBuilder, Row as _};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const LOCK_CLAIMS: &str = include_str!("sql/lock_claims.sql");
pub(super) const SENT: &str = include_str!("sql/mark_sent.sql");
const SENT_DELETE: &str = include_str!("sql/settle_sent_delete.sql");
const PUT_OFF: &str = include_str!("sql/put_off.sql");
const MARK_FAILED: &str = include_str!("sql/mark_failed.sql");
const ALREADY: &str = include_str!("sql/already_settled.sql");
pub(super) const FORGET_CLAIM: &str = include_str!("sql/forget_claim.sql");
const FORGET_PARCELS: &str = include_str!("sql/forget_parcels.sql");

const DOING: &str = "recording outcomes";

pub(super) async fn settle(store: &MySqlStore, settlements: &[Settlement]) -> StoreResult<Settled> {
    let mut settled = Settled::default();
    if settlements.is_empty() {
        return Ok(settled);
    }
    let failed = |error| store_error(DOING, error);
    let locking = store.locking().await.map_err(failed)?;
    let mut tx = store.begin().await.map_err(failed)?;
    // Claims come before deliveries in the order of locks.
    let tokens: BTreeSet<Token> = settlements.iter().filter_map(claim_of).collect();
    let mut claims = lock_claims(&mut tx, &tokens).await.map_err(failed)?;
    let at = now(&mut tx).await.map_err(failed)?;
    for settlement in settlements {
        let mut none = Vec::new();
        let named = claims.get_mut(&settlement.fence.token()).unwrap_or(&mut none);
        let found = let_through(&mut tx, settlement, named, locking).await.map_err(failed)?;
        let ended = apply(&mut tx, settlement, &found, at, store).await.map_err(failed)?;
        for Counted { verdict, .. } in &found.counted {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate {
                let announcement = (**announcement).clone();
                let outbox = store.rows.as_ref().map(Rows::own_outbox).unwrap_or_default();
                outbox.enqueue(&mut **tx, announcement).await.map_err(enqueue_error)?;
            }
        }
        named.retain(|parcel| !ended.contains(parcel));
        // A claim with a locked message still holds something.
        if let Fence::Claim(token) = settlement.fence
            && settlement.finished
            && found.locked.is_empty()
        {
            end_claim(&mut tx, token, named).await.map_err(failed)?;
        }
        settled.late.extend(late(&mut tx, settlement, &found).await.map_err(failed)?);
        settled.locked.extend(found.locked);
    }
    tx.commit().await.map_err(failed)?;
    Ok(settled)
}

/// The claim that a settlement locks: settlements of a claim on parcels take turns, and one that may go must
/// not be written to meanwhile.
fn claim_of(settlement: &Settlement) -> Option<Token> {
    match settlement.fence {
        Fence::Claim(token) => (settlement.finished || holds_parcels(token)).then_some(token),
        Fence::Dispatch { .. } => None,
    }
}

/// Locks claims in the order of their tokens, and reads what those on parcels name. One that is missing is
/// over.
pub(super) async fn lock_claims(
    tx: &mut Session,
    tokens: &BTreeSet<Token>,
) -> Result<BTreeMap<Token, Vec<ParcelKey>>, Error> {
    let mut claims = BTreeMap::new();
    let lock = |token: &Token| filled(LOCK_CLAIMS, &[("token", &literal::token(*token))]);
    for row in fetch_each(tx, tokens.iter().map(lock)).await? {
        let list: Option<String> = row.try_get(1)?;
        claims.insert(Token(row.try_get(0)?), read_list(&list.unwrap_or_default())?);
    }
    Ok(claims)
}

/// Ends a claim that holds nothing. What is left of its parcels is open and stays held, or was closed by hand
/// and goes with it.
pub(super) async fn end_claim(
    tx: &mut Session,
    token: Token,
    left: &[ParcelKey],
) -> Result<(), Error> {
    if !holds_parcels(token) {
        let forgotten = sqlx::query(FORGET_CLAIM).bind(token.0).bind(token.0);
        return forgotten.execute(&mut *tx).await.map(drop);
    }
    let held = held_parcels(tx, left).await?;
    let ids: Vec<Uuid> = held.iter().map(|held| held.parcel.key.message.id).collect();
    let recorded = recorded(tx, &ids).await?;
    let is_open = |id: &Uuid| recorded.get(id).is_some_and(Recorded::is_open);
    let is_over = |id: &Uuid, is_outranked: bool| is_outranked || !is_open(id);
    if held.iter().any(|held| !is_over(&held.parcel.key.message.id, held.is_outranked)) {
        return Ok(());
    }
    let over: Vec<ParcelKey> = held.into_iter().map(|held| held.parcel.key).collect();
    // The dead keep a delivery.
    let dead = recorded
        .values()
        .filter_map(|recorded| Delivery::of(recorded, recorded.bytes, Life::First));
    deliveries::write(tx, dead.collect(), IfThere::Keep).await?;
    end_parcels(tx, &over).await?;
    sqlx::query(FORGET_PARCELS).bind(token.0).execute(&mut *tx).await.map(drop)
}

/// What becomes of a message that was not delivered.
struct Undelivered<'a> {
    counted: &'a Counted<'a>,
    /// `None` when it was closed by hand.
    delivery: Option<Delivery>,
    written: Written<'a>,
}

/// What is written to a message.
enum Written<'a> {
    /// Nothing: it goes back as it is.
    Nothing,
    /// When it is due again.
    PutOff(NaiveDateTime),
    Failed(Failed<'a>),
}

/// A message that was not accepted.
struct Failed<'a> {
    key: Key,
    due_at: NaiveDateTime,
    is_dead: bool,
    error: &'a str,
    tried: Option<(AttemptOutcome, Duration)>,
}

/// Applies one settlement to what its fence lets through; the parcels that are over.
async fn apply(
    tx: &mut Session,
    settlement: &Settlement,
    found: &LetThrough<'_>,
    at: NaiveDateTime,
    store: &MySqlStore,
) -> Result<HashSet<ParcelKey>, Error> {
    let token = settlement.fence.token();
    let mut over: Vec<Uuid> = found.void_deliveries.clone();
    let mut ended: Vec<ParcelKey> = found.void_parcels.clone();
    let (mut sent, mut undelivered) = (Vec::new(), Vec::new());
    for counted in &found.counted {
        if let Origin::Parcel(parcel) = &counted.origin {
            ended.push(parcel.key.clone());
        }
        match undelivered_of(counted, at) {
            Some(one) => undelivered.push(one),
            None => sent.push(counted),
        }
    }
    let gone = |counted: &Counted<'_>| match &counted.origin {
        Origin::Delivery(held) => Some(held.key.id),
        Origin::Parcel(_) => None,
    };
    over.extend(sent.iter().filter_map(|one| gone(one)));
    let closed = undelivered.iter().filter(|one| one.delivery.is_none());
    over.extend(closed.filter_map(|one| gone(one.counted)));
    over.sort_unstable();
    deliveries::remove(tx, &over).await?;
    end_parcels(tx, &ended).await?;
    let sent: Vec<i64> = sent.iter().map(|one| one.recorded.key.seq).collect();
    mark_sent(tx, token, &sent, at, store).await?;
    write_deliveries(tx, settlement.fence, &undelivered).await?;
    put_off(tx, &undelivered, at).await?;
    let failed = undelivered.iter().filter_map(|one| match &one.written {
        Written::Failed(failed) => Some(failed),
        Written::Nothing | Written::PutOff(_) => None,
    });
    let failed: Vec<&Failed<'_>> = failed.collect();
    for part in failed.chunks(LIST) {
        mark_failed(tx, settlement.fence, part, at).await?;
    }
    Ok(ended.into_iter().collect())
}

/// What becomes of a message; `None` when it was delivered. The attempt decides over what was changed by hand
/// meanwhile, except where the message goes: it finishes, and then goes on there.
fn undelivered_of<'a>(counted: &'a Counted<'a>, at: NaiveDateTime) -> Option<Undelivered<'a>> {
    let recorded = &counted.recorded;
    let bytes = match &counted.origin {
        Origin::Parcel(parcel) => parcel.bytes,
        Origin::Delivery(_) => 0,
    };
    let as_it_says = || Delivery::of(recorded, bytes, Life::First);
    let delivery = |state, due_at| Delivery {
        key: recorded.key,
        due_at,
        since: recorded.due_at,
        integration: recorded.integration.clone(),
        state,
        bytes,
        rescues: 0,
        life: Life::First,
    };
    let failed = |is_dead, due_at, error, tried| Undelivered {
        counted,
        delivery: Some(delivery(if is_dead { 'd' } else { 'f' }, due_at)),
        written: Written::Failed(Failed { key: recorded.key, due_at, is_dead, error, tried }),
    };
    Some(match &counted.verdict.fate {
        Fate::Sent => return None,
        Fate::Failed { delay, error, took } => {
            failed(false, due_after(at, *delay), error, Some((AttemptOutcome::Retry, *took)))
        }
        // The dead keep the time at which they were due.
        Fate::Dead { error, tried, .. } => {
            failed(true, recorded.due_at, error, tried.map(|tried| (tried.outcome, tried.took)))
        }
        Fate::Postponed { delay } if is_unchanged(counted, at) => {
            let due_at = due_after(at, *delay);
            let delivery =
                as_it_says().map(|delivery| Delivery { due_at, since: due_at, ..delivery });
            Undelivered { counted, delivery, written: Written::PutOff(due_at) }
        }
        Fate::Released | Fate::Postponed { .. } => {
            Undelivered { counted, delivery: as_it_says(), written: Written::Nothing }
        }
    })
}

/// Whether an open message still says what it said when it was taken.
fn is_unchanged(counted: &Counted<'_>, at: NaiveDateTime) -> bool {
    let recorded = &counted.recorded;
    match &counted.origin {
        Origin::Delivery(DeliveryRow { due_at, integration, state, .. }) => {
            recorded.is_open()
                && recorded.state() == Some(*state)
                && recorded.due_at == *due_at
                && recorded.integration == *integration
        }
        Origin::Parcel(parcel) => {
            recorded.state() == Some('w')
                && recorded.due_at <= at
                && *recorded.integration == *parcel.key.integration
        }
    }
}

/// An outcome clears the rescues; what goes back as it is keeps them.
async fn write_deliveries(
    tx: &mut Session,
    fence: Fence,
    undelivered: &[Undelivered<'_>],
) -> Result<(), Error> {
    let dispatches = u8::from(matches!(fence, Fence::Dispatch { .. }));
    let (mut failed, mut put_off, mut as_they_were) = (Vec::new(), Vec::new(), Vec::new());
    for one in undelivered {
        let kind = match one.written {
            Written::Failed(_) => &mut failed,
            Written::PutOff(_) => &mut put_off,
            Written::Nothing => &mut as_they_were,
        };
        kind.extend(one.delivery.clone());
    }
    let kept = "outbox_delivery.rescues";
    for (deliveries, wait, rescues) in [
        (failed, Wait::GoesOn, "0"),
        (put_off, Wait::BeginsAnew, kept),
        (as_they_were, Wait::AsItSays, kept),
    ] {
        deliveries::write(tx, deliveries, IfThere::Follow { wait, rescues, dispatches }).await?;
    }
    Ok(())
}

async fn mark_sent(
    tx: &mut Session,
    token: Token,
    seqs: &[i64],
    at: NaiveDateTime,
    store: &MySqlStore,
) -> Result<(), Error> {
    let (at, token) = (format!("'{at}'"), literal::token(token));
    for part in seqs.chunks(LIST) {
        let list = literal::numbers(part.iter().copied());
        if store.keep_sent {
            let places = [("at", at.as_str()), ("token", &token), ("seqs", &list)];
            execute(tx, filled(SENT, &places)).await?;
        } else {
            remembered::remember(tx, part, store.remember_events).await?;
            delete_messages(tx, part).await?;
        }
    }
    Ok(())
}

/// Deletes messages of which the ledger has nothing any more, with their attempts.
pub(super) async fn delete_messages(tx: &mut Session, seqs: &[i64]) -> Result<(), Error> {
    let delete = |seq: &i64| filled(SENT_DELETE, &[("seq", &seq.to_string())]);
    execute_each(tx, seqs.iter().map(delete)).await?;
    attempts::forget(tx, seqs).await
}

fn due_after(at: NaiveDateTime, delay: Duration) -> NaiveDateTime {
    at + TimeDelta::microseconds(micros(delay))
}

async fn put_off(
    tx: &mut Session,
    undelivered: &[Undelivered<'_>],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let postponed = undelivered.iter().filter_map(|one| match one.written {
        Written::PutOff(due_at) => Some((one.counted.recorded.key.seq, due_at)),
        Written::Nothing | Written::Failed(_) => None,
    });
    let postponed: Vec<(i64, NaiveDateTime)> = postponed.collect();
    for part in postponed.chunks(LIST) {
        let due_at = by_seq(part, |(seq, due_at)| (*seq, format!("'{due_at}'")));
        let (at, token) = (format!("'{at}'"), literal::token(Token::random()));
        let seqs = literal::numbers(part.iter().map(|(seq, _)| *seq));
        let places = [("due_at", due_at.as_str()), ("at", &at), ("token", &token), ("seqs", &seqs)];
        execute(tx, filled(PUT_OFF, &places)).await?;
    }
    Ok(())
}

/// Marks the messages, and puts the attempts on record: a statement each, however many there are.
async fn mark_failed(
    tx: &mut Session,
    fence: Fence,
    failed: &[&Failed<'_>],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let status = |one: &&Failed<'_>| if one.is_dead { "'DEAD'" } else { "'FAILED'" }.to_owned();
    let more = by_seq(failed, |one| (one.key.seq, i32::from(one.tried.is_some()).to_string()));
    let places = [
        ("status", by_seq(failed, |one| (one.key.seq, status(one)))),
        ("due_at", by_seq(failed, |one| (one.key.seq, format!("'{}'", one.due_at)))),
        ("attempts", attempts(fence, &more)),
        ("at", format!("'{at}'")),
        ("token", literal::token(fence.token())),
    ];
    let places = places.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut update: QueryBuilder<MySql> = QueryBuilder::new(filled(MARK_FAILED, &places));
    for one in failed {
        update.push(format!(" WHEN {} THEN ", one.key.seq)).push_bind(clip_error(one.error));
    }
    let seqs = literal::numbers(failed.iter().map(|one| one.key.seq));
    update.push(format!(" END WHERE seq IN ({seqs})"));
    update.build().persistent(false).execute(&mut *tx).await?;

    let failures = failed.iter().filter_map(|one| {
        let (outcome, took) = one.tried?;
        Some(Failure { key: one.key, took, outcome, error: one.error })
    });
    attempts::record(tx, &failures.collect::<Vec<_>>(), at).await
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

/// A value that depends on the message.
fn by_seq<T>(all: &[T], value: impl Fn(&T) -> (i64, String)) -> String {
    let mut cases = String::from("CASE seq");
    for one in all {
        let (seq, value) = value(one);
        cases.push_str(&format!(" WHEN {seq} THEN {value}"));
    }
    cases.push_str(" END");
    cases
}

/// Verdicts that changed nothing are late, unless the same settlement was applied before: then
/// its outcome was unknown, and it is repeated.
async fn late(
    tx: &mut Session,
    settlement: &Settlement,
    found: &LetThrough<'_>,
) -> Result<Vec<i64>, Error> {
    let counted: HashSet<&MessageId> = found.counted.iter().map(|one| &one.verdict.id).collect();
    let locked: HashSet<i64> = found.locked.iter().copied().collect();
    let mut unchanged: Vec<&Verdict> = settlement.verdicts.iter().collect();
    unchanged.retain(|one| !counted.contains(&one.id) && !locked.contains(&one.seq));
    let mut known = HashSet::new();
    let token = literal::token(settlement.fence.token());
    for part in unchanged.chunks(LIST) {
        let seqs = literal::numbers(part.iter().map(|one| one.seq));
        for row in fetch(tx, filled(ALREADY, &[("token", &token), ("seqs", &seqs)])).await? {
            let id = row.try_get::<Hyphenated, _>(1)?.into();
            known.insert(Key { seq: row.try_get(0)?, id });
        }
    }
    unchanged.retain(|one| !known.contains(&Key::judged(one)));
    Ok(unchanged.iter().map(|one| one.seq).collect())
}
