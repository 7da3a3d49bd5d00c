//! The history of failed attempts.

use super::SqliteStore;
use super::claims::json;
use super::error::store_error;
use super::row::{optional_text, text};
use super::time::moment;
use super::upkeep::count;
use crate::round::Round;
use postroom_core::{
    ATTEMPTS_KEPT, Attempt, AttemptOutcome, StoreResult, Tried, clip_error, clip_response,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection};
use uuid::Uuid;

const ATTEMPTS: &str = "
    SELECT a.at, a.took_ms, a.outcome, a.error, a.response
    FROM integration_outbox AS m CROSS JOIN outbox_attempt AS a ON a.seq = m.seq
    WHERE m.id = ?1 ORDER BY a.number";

/// `?1` number of the message, `?2` now, `?3` milliseconds, `?4` outcome, `?5` error.
const NOTE: &str = "
    INSERT INTO outbox_attempt (seq, number, at, took_ms, outcome, error)
    SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5 FROM outbox_attempt WHERE seq = ?1";

/// `?1` number of the message, `?2` attempts kept.
const FORGET_OLDEST: &str = "
    DELETE FROM outbox_attempt
    WHERE seq = ?1 AND number <= (SELECT max(number) FROM outbox_attempt WHERE seq = ?1) - ?2";

/// `?1` id of the message, `?2` response.
const KEEP_RESPONSE: &str = "
    UPDATE outbox_attempt SET response = ?2
    WHERE (seq, number) = (
        SELECT a.seq, max(a.number) FROM integration_outbox AS m
        CROSS JOIN outbox_attempt AS a ON a.seq = m.seq WHERE m.id = ?1
    ) AND response IS NULL";

/// `?1` numbers of messages.
const FORGET: &str = "DELETE FROM outbox_attempt WHERE seq IN (SELECT value FROM json_each(?1))";

/// Messages with attempts, from a number on. `?1` after, `?2` messages.
const SEEN: &str = "SELECT DISTINCT seq FROM outbox_attempt WHERE seq > ?1 ORDER BY seq LIMIT ?2";

/// `?1` numbers of messages.
const FORGET_ORPHANS: &str = "
    DELETE FROM outbox_attempt
    WHERE seq IN (SELECT value FROM json_each(?1))
      AND NOT EXISTS (SELECT 1 FROM integration_outbox AS m WHERE m.seq = outbox_attempt.seq)";

pub(super) async fn of(store: &SqliteStore, id: Uuid) -> StoreResult<Vec<Attempt>> {
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
    tx: &mut SqliteConnection,
    seq: i64,
    tried: Tried,
    error: &str,
    now: i64,
) -> Result<(), Error> {
    sqlx::query(NOTE)
        .bind(seq)
        .bind(now)
        .bind(i64::try_from(tried.took.as_millis()).unwrap_or(i64::MAX))
        .bind(tried.outcome.as_str())
        .bind(clip_error(error))
        .execute(&mut *tx)
        .await?;
    sqlx::query(FORGET_OLDEST)
        .bind(seq)
        .bind(i64::try_from(ATTEMPTS_KEPT).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await?;
    Ok(())
}

/// Keeps what receivers answered with the latest attempts.
pub(super) async fn keep_responses(
    store: &SqliteStore,
    responses: &[(Uuid, String)],
) -> StoreResult<()> {
    let doing = "keeping responses";
    let mut tx = store.begin(doing).await?;
    for (id, response) in responses {
        sqlx::query(KEEP_RESPONSE)
            .bind(id.to_string())
            .bind(clip_response(response))
            .execute(&mut *tx)
            .await
            .map_err(|e| store_error(doing, e))?;
    }
    tx.commit().await.map_err(|e| store_error(doing, e))
}

/// Forgets the attempts of messages that go.
pub(super) async fn forget(tx: &mut SqliteConnection, seqs: &[i64]) -> Result<(), Error> {
    sqlx::query(FORGET).bind(json(seqs)).execute(&mut *tx).await?;
    Ok(())
}

/// Forgets the attempts of messages that were deleted by hand. Looks at the attempts of at most
/// `messages` messages, and goes on there the next time.
pub(super) async fn sweep(
    tx: &mut SqliteConnection,
    swept: &Round,
    messages: i64,
) -> Result<(), Error> {
    let after = swept.after();
    let seen: Vec<i64> =
        sqlx::query_scalar(SEEN).bind(after).bind(messages).fetch_all(&mut *tx).await?;
    sqlx::query(FORGET_ORPHANS).bind(json(&seen)).execute(&mut *tx).await?;
    swept.note(&seen);
    Ok(())
}
