//! Freeing what expired claims hold.

use super::claims::FORGET_CLOSED;
use super::error::store_error;
use super::json_lists::{ids, json_ids};
use super::parcels::{self, FOLLOW};
use super::row::{optional_text, text as text_column};
use super::session::Session;
use super::settle::FORGET_CLAIM;
use super::settle_parcels::END_CLAIM;
use super::time::{now_ms, text};
use super::upkeep::count;
use super::{SqliteStore, attempts};
use postroom_core::{AttemptOutcome, RelayId, StoreResult, Token, Tried};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use std::time::{Duration, Instant};

pub(super) const EXPIRED: &str = include_str!("sql/expired.sql");
pub(super) const HELD: &str = include_str!("sql/claimed_by.sql");
pub(super) const RESCUE: &str = include_str!("sql/rescue.sql");
const COUNT_LOST: &str = include_str!("sql/count_lost.sql");

/// A rescue that waited for the file for longer than this leaves it to the next one.
const WAITED: Duration = Duration::from_millis(500);

/// Rescues so many claims; how many messages they held.
pub(super) async fn rescue(store: &SqliteStore, relay: RelayId, limit: usize) -> StoreResult<u64> {
    let doing = "rescuing expired claims";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let relay = relay.0.to_string();
    loop {
        // Looks before the write lock is taken: mostly there is nothing to rescue.
        let expired = sqlx::query(EXPIRED)
            .bind(now_ms())
            .bind(1)
            .bind(&relay)
            .fetch_optional(&store.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        if expired.is_none() {
            return Ok(0);
        }
        let asked = Instant::now();
        let mut tx = store.begin(doing).await?;
        // Whoever held the file kept other relays' heartbeats waiting too. They come first now: what looks
        // expired is perhaps in the hands of a relay that lives.
        if asked.elapsed() > WAITED {
            return Ok(0);
        }
        let freed = free(&mut tx, &relay, limit).await.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        // Behind claims that held nothing there may be one that does.
        if freed > 0 {
            return Ok(freed);
        }
    }
}

/// Under the write lock: nobody settles what is looked at here.
async fn free(tx: &mut Session, relay: &str, limit: i64) -> Result<u64, Error> {
    let now = now_ms();
    let expired =
        sqlx::query(EXPIRED).bind(now).bind(limit).bind(relay).fetch_all(&mut *tx).await?;
    let mut rescued = 0;
    for claim in &expired {
        rescued += match optional_text(claim, 5)? {
            Some(parcels) => free_parcels(tx, claim, &parcels).await?,
            None => free_deliveries(tx, claim, now).await?,
        };
    }
    Ok(rescued)
}

/// Makes deliveries of what is still open, and ends the claim; how many parcels it held.
async fn free_parcels(tx: &mut Session, claim: &SqliteRow, parcels: &str) -> Result<u64, Error> {
    let dispatched: bool = claim.try_get(4)?;
    let ended = parcels::end(tx, &parcels::named(parcels)?).await?;
    let ids: Vec<String> = ended.into_iter().map(|one| one.id).collect();
    if !ids.is_empty() {
        parcels::make(tx, &ids, i64::from(!dispatched), 0).await?;
    }
    sqlx::query(END_CLAIM).bind(text_column(claim, 0)?).execute(tx).await?;
    Ok(ids.len() as u64)
}

async fn free_deliveries(tx: &mut Session, claim: &SqliteRow, now: i64) -> Result<u64, Error> {
    let token = text_column(claim, 0)?;
    let alone: bool = claim.try_get(2)?;
    let dispatched: bool = claim.try_get(4)?;
    if alone {
        // While the claim stands: the trigger would follow it otherwise, as a change by hand.
        let took = Duration::from_millis(count(claim, 3)?);
        count_lost(tx, &text_column(claim, 1)?, &token, took, now).await?;
    }
    let freed =
        sqlx::query(RESCUE).bind(&token).bind(i64::from(!dispatched)).fetch_all(&mut *tx).await?;
    let freed = ids(&freed)?;
    sqlx::query(FOLLOW).bind(json_ids(&freed)).execute(&mut *tx).await?;
    sqlx::query(FORGET_CLOSED).bind(json_ids(&freed)).execute(&mut *tx).await?;
    sqlx::query(FORGET_CLAIM).bind(&token).execute(&mut *tx).await?;
    Ok(freed.len() as u64)
}

/// A message that was lost alone has failed.
async fn count_lost(
    tx: &mut Session,
    worker: &str,
    token: &str,
    took: Duration,
    now: i64,
) -> Result<(), Error> {
    let error = format!(
        "lost with its relay: the claim of {worker} expired while it handled this message alone"
    );
    let held = ids(&sqlx::query(HELD).bind(token).fetch_all(&mut *tx).await?)?;
    let lost = sqlx::query(COUNT_LOST)
        .bind(Token::random().0.to_string())
        .bind(json_ids(&held))
        .bind(&error)
        .bind(text(now))
        .fetch_all(&mut *tx)
        .await?;
    let tried = Tried { outcome: AttemptOutcome::Lost, took };
    for id in ids(&lost)? {
        attempts::note(tx, &id, tried, &error, now).await?;
    }
    Ok(())
}
