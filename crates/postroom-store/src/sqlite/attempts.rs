//! The history of failed attempts.

use super::SqliteStore;
use super::error::store_error;
use super::json_lists::{json, json_ids};
use super::row::{optional_text, text};
use super::session::Session;
use super::time::moment;
use super::upkeep::count;
use postroom_core::{
    ATTEMPTS_KEPT, Attempt, AttemptOutcome, MessageId, StoreResult, Tried, clip_error,
    clip_response,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use std::sync::{Mutex, PoisonError};

const ATTEMPTS: &str = include_str!("sql/attempts_of.sql");
const NOTE: &str = include_str!("sql/note_attempts.sql");
const FORGET_OLDEST: &str = include_str!("sql/forget_oldest_attempts.sql");
const KEEP_RESPONSE: &str = include_str!("sql/keep_response.sql");
const FORGET: &str = include_str!("sql/forget_attempts.sql");
pub(super) const SWEEP: &str = include_str!("sql/sweep_attempts.sql");
const FORGET_ORPHANS: &str = include_str!("sql/forget_attempts_without_a_message.sql");

/// How far the sweep has come, by message. Every process sweeps for itself: what one has looked at,
/// another may look at again.
#[derive(Debug, Default)]
pub(super) struct Swept(Mutex<String>);

pub(super) async fn of(store: &SqliteStore, id: &MessageId) -> StoreResult<Vec<Attempt>> {
    let doing = "reading attempts";
    let rows = sqlx::query(ATTEMPTS)
        .bind(id.to_string())
        .fetch_all(&store.readers)
        .await
        .map_err(|e| store_error(doing, e))?;
    rows.iter().map(attempt).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

fn attempt(row: &SqliteRow) -> Result<Attempt, Error> {
    Ok(Attempt {
        at: moment(row.try_get(0)?),
        took_ms: count(row, 1)?,
        // A CHECK keeps every other word out.
        outcome: AttemptOutcome::from_word(&text(row, 2)?).unwrap_or(AttemptOutcome::Retry),
        error: text(row, 3)?,
        response: optional_text(row, 4)?,
    })
}

/// Keeps a failed attempt, and forgets the oldest of its message.
pub(super) async fn note(
    tx: &mut Session,
    id: &MessageId,
    tried: Tried,
    error: &str,
    now: i64,
) -> Result<(), Error> {
    sqlx::query(NOTE)
        .bind(id.to_string())
        .bind(now)
        .bind(i64::try_from(tried.took.as_millis()).unwrap_or(i64::MAX))
        .bind(tried.outcome.as_str())
        .bind(clip_error(error))
        .execute(&mut *tx)
        .await?;
    sqlx::query(FORGET_OLDEST)
        .bind(id.to_string())
        .bind(i64::try_from(ATTEMPTS_KEPT).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await?;
    Ok(())
}

/// Keeps what receivers answered with the latest attempts.
pub(super) async fn keep_responses(
    store: &SqliteStore,
    responses: &[(MessageId, String)],
) -> StoreResult<()> {
    let doing = "keeping responses";
    let mut tx = store.begin(doing).await?;
    for (id, response) in responses {
        sqlx::query(KEEP_RESPONSE)
            .bind(id.to_string())
            .bind(clip_response(response))
            .execute(&mut tx)
            .await
            .map_err(|e| store_error(doing, e))?;
    }
    tx.commit().await.map_err(|e| store_error(doing, e))
}

/// Forgets the attempts of messages that go.
pub(super) async fn forget(tx: &mut Session, of: &[MessageId]) -> Result<(), Error> {
    sqlx::query(FORGET).bind(json_ids(of)).execute(&mut *tx).await?;
    Ok(())
}

/// Forgets the attempts of messages that were deleted by hand. Looks at the attempts of at most `messages`
/// messages, and goes on there the next time.
pub(super) async fn sweep(tx: &mut Session, swept: &Swept, messages: i64) -> Result<(), Error> {
    let after = swept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let seen: Vec<String> =
        sqlx::query_scalar(SWEEP).bind(after).bind(messages).fetch_all(&mut *tx).await?;
    sqlx::query(FORGET_ORPHANS).bind(json(&seen)).execute(&mut *tx).await?;
    let mut after = swept.0.lock().unwrap_or_else(PoisonError::into_inner);
    *after = seen.into_iter().next_back().unwrap_or_default();
    Ok(())
}
