//! Deleting what is old.

use super::attempts;
use super::json_lists::{ids, json, json_ids};
use super::row::text;
use super::session::Session;
use super::settle::DELETE_MESSAGES;
use super::time::{now_ms, text as as_text};
use crate::round::Round;
use postroom_core::MessageId;
use sqlx::{Error, Row as _};
use std::time::Duration;

pub(super) const PRUNE: &str = include_str!("sql/prune.sql");
pub(super) const PRUNABLE: &str = include_str!("sql/prunable.sql");
const REMEMBER: &str = include_str!("sql/remember.sql");
const FORGET_EVENTS: &str = include_str!("sql/forget_events.sql");
const PRUNE_DEAD: &str = include_str!("sql/prune_dead.sql");
pub(super) const PRUNABLE_DEAD: &str = include_str!("sql/prunable_dead.sql");
const DELETE_DELIVERIES: &str = include_str!("sql/delete_deliveries.sql");
pub(super) const DEAD: &str = include_str!("sql/dead.sql");
pub(super) const PRUNE_ORPHANS: &str = include_str!("sql/prune_orphans.sql");

/// Deletes SENT messages from before, with their attempts, and remembers their events for so long after
/// their delivery.
pub(super) async fn prune_sent(
    tx: &mut Session,
    before: i64,
    limit: i64,
    remembered: Duration,
) -> Result<u64, Error> {
    // Kept for ever: somebody else's table may have no index to find that by.
    let old = match before {
        0 => Vec::new(),
        _ => sqlx::query(PRUNE).bind(as_text(before)).bind(limit).fetch_all(&mut *tx).await?,
    };
    let old = ids(&old)?;
    delete(tx, &old, remembered).await?;
    sqlx::query(FORGET_EVENTS).bind(now_ms()).bind(limit).execute(tx).await?;
    Ok(old.len() as u64)
}

/// Deletes messages that were delivered, and remembers their events; those that were there.
pub(super) async fn delete(
    tx: &mut Session,
    messages: &[MessageId],
    remembered: Duration,
) -> Result<Vec<MessageId>, Error> {
    if !remembered.is_zero() {
        sqlx::query(REMEMBER)
            .bind(json_ids(messages))
            .bind(i64::try_from(remembered.as_millis()).unwrap_or(i64::MAX / 2))
            .bind(now_ms())
            .execute(&mut *tx)
            .await?;
    }
    let gone = sqlx::query(DELETE_MESSAGES).bind(json_ids(messages)).fetch_all(&mut *tx).await?;
    let gone = ids(&gone)?;
    attempts::forget(tx, &gone).await?;
    Ok(gone)
}

/// Deletes DEAD messages from before, with all they have.
pub(super) async fn prune_dead(tx: &mut Session, before: &str, limit: i64) -> Result<u64, Error> {
    let old = sqlx::query(PRUNE_DEAD).bind(before).bind(limit).fetch_all(&mut *tx).await?;
    let old = ids(&old)?;
    sqlx::query(DELETE_DELIVERIES).bind(json_ids(&old)).execute(&mut *tx).await?;
    sqlx::query(DELETE_MESSAGES).bind(json_ids(&old)).execute(&mut *tx).await?;
    attempts::forget(tx, &old).await?;
    Ok(old.len() as u64)
}

/// Deletes dead deliveries whose message was deleted by hand: no claim ever comes by to find them.
/// Looks at no more than `deliveries` dead ones, and goes on there the next time.
pub(super) async fn prune_orphans(
    tx: &mut Session,
    looked_through: &Round,
    deliveries: i64,
) -> Result<(), Error> {
    let seen =
        sqlx::query(DEAD).bind(looked_through.after()).bind(deliveries).fetch_all(&mut *tx).await?;
    let seqs = seen.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    let seen: Vec<String> = seen.iter().map(|row| text(row, 1)).collect::<Result<_, _>>()?;
    sqlx::query(PRUNE_ORPHANS).bind(json(&seen)).execute(&mut *tx).await?;
    looked_through.note(&seqs);
    Ok(())
}
