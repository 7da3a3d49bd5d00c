//! The history of failed attempts: reading it, and forgetting what has no message any more.
//! `sql/note_attempts.sql` writes it.

use super::PgStore;
use super::error::store_error;
use super::ids::{After, Id, as_ids};
use postroom_core::{Attempt, AttemptOutcome, MessageId, StoreResult, clip_response};
use std::sync::{Mutex, PoisonError};
use tokio_postgres::{Error, Row};

const ATTEMPTS: &str = "SELECT at, took_ms, outcome, error, response FROM core_outbox.attempt \
                        WHERE message_id = $1 ORDER BY number";
const SWEEP: &str = include_str!("sql/sweep_attempts.sql");

/// $1 messages, $2 responses.
const KEEP_RESPONSES: &str = "UPDATE core_outbox.attempt a SET response = r.response \
    FROM unnest($1::uuid[], $2::text[]) AS r (id, response) \
    WHERE a.message_id = r.id AND a.response IS NULL \
      AND a.number = (SELECT max(b.number) FROM core_outbox.attempt b WHERE b.message_id = r.id)";

/// How far the sweep has come. Every process sweeps for itself: what one has looked at, another
/// may look at again.
#[derive(Debug, Default)]
pub(super) struct Swept(Mutex<After>);

pub(super) async fn of(store: &PgStore, id: &MessageId) -> StoreResult<Vec<Attempt>> {
    let doing = "reading attempts";
    let client = store.connection().await?;
    let rows = client.query(ATTEMPTS, &[&Id(id)]).await.map_err(|e| store_error(doing, e))?;
    rows.iter().map(attempt).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

/// Keeps what receivers answered with the latest attempts.
pub(super) async fn keep_responses(
    store: &PgStore,
    responses: &[(MessageId, String)],
) -> StoreResult<()> {
    let ids = as_ids(responses.iter().map(|(id, _)| id));
    let texts: Vec<String> = responses.iter().map(|(_, text)| clip_response(text)).collect();
    let client = store.connection().await?;
    let kept = client.execute(KEEP_RESPONSES, &[&ids, &texts]).await;
    kept.map_err(|e| store_error("keeping responses", e))?;
    Ok(())
}

fn attempt(row: &Row) -> Result<Attempt, Error> {
    let outcome: &str = row.try_get(2)?;
    Ok(Attempt {
        at: row.try_get(0)?,
        took_ms: u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0),
        // A CHECK keeps every other word out.
        outcome: AttemptOutcome::from_word(outcome).unwrap_or(AttemptOutcome::Retry),
        error: row.try_get(3)?,
        response: row.try_get(4)?,
    })
}

/// Forgets the attempts of messages that were deleted by hand. Looks at the attempts of at most
/// `messages` messages, and goes on there the next time.
pub(super) async fn sweep(store: &PgStore, messages: i64) -> StoreResult<()> {
    let doing = "sweeping attempts";
    let client = store.connection().await?;
    let after = store.swept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let messages = i32::try_from(messages).unwrap_or(i32::MAX);
    let row =
        client.query_opt(SWEEP, &[&after, &messages]).await.map_err(|e| store_error(doing, e))?;
    let last: Option<Id> =
        row.map_or(Ok(None), |row| row.try_get(0)).map_err(|e| store_error(doing, e))?;
    *store.swept.0.lock().unwrap_or_else(PoisonError::into_inner) = After(last.map(|Id(id)| id));
    Ok(())
}
