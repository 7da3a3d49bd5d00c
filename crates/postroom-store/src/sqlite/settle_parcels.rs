//! Settling claims on parcels. A parcel goes with the outcome of its message; what was not delivered gets a
//! delivery in the same transaction, so no parcel goes back to its lane.

use super::json_lists::{ids, json};
use super::parcels::{self, Ended, Parcel};
use super::session::Session;
use super::settle::{Failure, Writing, of, there};
use super::time::later;
use postroom_core::{Fate, MessageId, Settlement};
use sqlx::Error;
use std::collections::{HashMap, HashSet};

pub(super) const OUTRANKED: &str = include_str!("sql/outranked.sql");
pub(super) const FAILED: &str = include_str!("sql/settle_parcels_failed.sql");
pub(super) const POSTPONED: &str = include_str!("sql/settle_parcels_postponed.sql");
pub(super) const FORGET_PARCELS: &str = include_str!("sql/forget_parcels.sql");
pub(super) const END_CLAIM: &str = include_str!("sql/end_claim.sql");

/// Applies one settlement of a claim that names these parcels; the messages that it changed. A message whose
/// parcel is gone was settled or taken from the claim before.
pub(super) async fn apply(
    tx: &mut Session,
    settlement: &Settlement,
    parcels: &str,
    writing: Writing,
) -> Result<HashSet<MessageId>, Error> {
    let named = parcels::named(parcels)?;
    let (count, wanted): (usize, HashSet<String>) =
        (named.len(), settlement.verdicts.iter().map(|verdict| verdict.id.to_string()).collect());
    let concerned: Vec<Parcel> =
        named.into_iter().filter(|parcel| wanted.contains(&parcel.id)).collect();
    let ended = parcels::end(tx, &concerned).await?;
    let is_whole = ended.len() == count;
    let mine = without_outranked(tx, ended).await?;
    let changed = write(tx, settlement, &mine, writing).await?;
    if settlement.finished {
        let forget = if is_whole { END_CLAIM } else { FORGET_PARCELS };
        sqlx::query(forget).bind(writing.token.0.to_string()).execute(&mut *tx).await?;
    }
    Ok(changed)
}

/// Parcels that are gone, by message. A delivery outranks its parcel: such a message is not the claim's to
/// settle.
async fn without_outranked(
    tx: &mut Session,
    ended: Vec<Ended>,
) -> Result<HashMap<MessageId, Ended>, Error> {
    let texts: Vec<&str> = ended.iter().map(|one| one.id.as_str()).collect();
    let outranked = ids(&sqlx::query(OUTRANKED).bind(json(&texts)).fetch_all(tx).await?)?;
    let mut mine = HashMap::with_capacity(ended.len());
    for one in ended {
        let id = MessageId::trusted(&one.id);
        if !outranked.contains(&id) {
            mine.insert(id, one);
        }
    }
    Ok(mine)
}

async fn write(
    tx: &mut Session,
    settlement: &Settlement,
    mine: &HashMap<MessageId, Ended>,
    writing: Writing,
) -> Result<HashSet<MessageId>, Error> {
    let mut changed = HashSet::new();
    let mut sent = of(settlement, |fate| matches!(fate, Fate::Sent));
    sent.retain(|id| mine.contains_key(id));
    if !sent.is_empty() {
        changed.extend(writing.mark_sent(tx, &sent).await?);
    }
    let mut released: Vec<String> = Vec::new();
    for verdict in &settlement.verdicts {
        let Some(ended) = mine.get(&verdict.id) else { continue };
        let is_changed = match &verdict.fate {
            Fate::Sent => continue,
            Fate::Released => false,
            Fate::Postponed { delay } => {
                put_off(tx, &verdict.id, ended, later(writing.now, *delay), writing).await?
            }
            Fate::Failed { .. } | Fate::Dead { .. } => {
                // One that was deleted meanwhile is over.
                fail(tx, &verdict.id, &verdict.fate, writing).await?
            }
        };
        if is_changed {
            changed.insert(verdict.id.clone());
        } else if matches!(verdict.fate, Fate::Released | Fate::Postponed { .. }) {
            released.push(ended.id.clone());
        }
    }
    if !released.is_empty() {
        parcels::make(tx, &released, 0, 0).await?;
        changed.extend(there(tx, &json(&released)).await?);
    }
    Ok(changed)
}

/// From here on the message has a delivery, due again or dead; whether it was there.
async fn fail(
    tx: &mut Session,
    id: &MessageId,
    fate: &Fate,
    writing: Writing,
) -> Result<bool, Error> {
    let Some(failure) = Failure::of(fate) else { return Ok(false) };
    sqlx::query(FAILED)
        .bind(id.to_string())
        .bind(writing.due_at(&failure))
        .execute(&mut *tx)
        .await?;
    writing.mark_failed(tx, id, &failure, None).await
}

/// Postpones a message that nobody has changed; whether that is so.
async fn put_off(
    tx: &mut Session,
    id: &MessageId,
    ended: &Ended,
    due_at: i64,
    writing: Writing,
) -> Result<bool, Error> {
    let made = sqlx::query(POSTPONED)
        .bind(id.to_string())
        .bind(due_at)
        .bind(&ended.integration)
        .bind(ended.due_at)
        .execute(&mut *tx)
        .await?;
    if made.rows_affected() == 0 {
        return Ok(false);
    }
    writing.mark_put_off(tx, id, due_at).await?;
    Ok(true)
}
