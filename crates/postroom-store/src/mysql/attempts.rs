//! The history of failed attempts.

use super::error::store_error;
use super::{LIST, MySqlStore, delete, execute, fetch, list, numbers};
use crate::round::Round;
use chrono::NaiveDateTime;
use postroom_core::{
    ATTEMPTS_KEPT, Attempt, AttemptOutcome, StoreResult, clip_error, clip_response,
};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, MySql, MySqlConnection, QueryBuilder, Row as _};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// A failed attempt that goes on record.
pub(super) struct Failure<'a> {
    pub(super) seq: i64,
    pub(super) took: Duration,
    pub(super) outcome: AttemptOutcome,
    pub(super) error: &'a str,
}

/// Puts failed attempts on record, at most one of each message, and forgets the oldest of
/// messages that have too many. The messages are locked, so that nobody else counts them.
pub(super) async fn record(
    tx: &mut MySqlConnection,
    failures: &[Failure<'_>],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let kept = i32::try_from(ATTEMPTS_KEPT).unwrap_or(i32::MAX);
    for part in failures.chunks(LIST) {
        let last = last_numbers(tx, part).await?;
        let number = |seq: i64| last.get(&seq).map_or(1, |last| last.saturating_add(1));
        let mut insert: QueryBuilder<MySql> = QueryBuilder::new(
            "INSERT INTO outbox_attempt (seq, number, at, took_ms, outcome, error) ",
        );
        insert.push_values(part, |mut row, failure| {
            row.push_bind(failure.seq)
                .push_bind(number(failure.seq))
                .push_bind(at)
                .push_bind(u64::try_from(failure.took.as_millis()).unwrap_or(u64::MAX))
                .push_bind(failure.outcome.as_str())
                .push_bind(clip_error(failure.error));
        });
        insert.build().persistent(false).execute(&mut *tx).await?;
        for seq in last.keys().copied().filter(|seq| number(*seq) > kept) {
            let before = number(seq) - kept;
            let sql =
                format!("DELETE FROM outbox_attempt WHERE seq = {seq} AND number <= {before}");
            execute(tx, sql).await?;
        }
    }
    Ok(())
}

/// The number of each message's last attempt, where there was one.
async fn last_numbers(
    tx: &mut MySqlConnection,
    failures: &[Failure<'_>],
) -> Result<HashMap<i64, i32>, Error> {
    let seqs: Vec<i64> = failures.iter().map(|failure| failure.seq).collect();
    let sql = format!(
        "SELECT seq, MAX(number) FROM outbox_attempt FORCE INDEX (PRIMARY) WHERE seq IN ({}) GROUP BY seq",
        list(&seqs)
    );
    fetch(tx, sql).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Id of the message.
const LATEST: &str = "
    SELECT a.seq, MAX(a.number) FROM integration_outbox AS m FORCE INDEX (outbox_id)
    JOIN outbox_attempt AS a FORCE INDEX (PRIMARY) ON a.seq = m.seq
    WHERE m.id = ? GROUP BY a.seq";
/// Response, number of the message, number of the attempt.
const KEEP_RESPONSE: &str =
    "UPDATE outbox_attempt SET response = ? WHERE seq = ? AND number = ? AND response IS NULL";

/// Keeps what receivers answered with the latest attempts.
pub(super) async fn keep_responses(
    store: &MySqlStore,
    responses: &[(Uuid, String)],
) -> StoreResult<()> {
    let failed = |error| store_error("keeping responses", error);
    for (id, response) in responses {
        let latest: Option<(i64, i32)> = sqlx::query_as(LATEST)
            .bind(id.hyphenated())
            .fetch_optional(&store.pool)
            .await
            .map_err(failed)?;
        let Some((seq, number)) = latest else { continue };
        let kept = sqlx::query(KEEP_RESPONSE).bind(clip_response(response)).bind(seq).bind(number);
        kept.execute(&store.pool).await.map_err(failed)?;
    }
    Ok(())
}

/// Forgets the attempts of messages that leave.
pub(super) async fn forget(tx: &mut MySqlConnection, seqs: &[i64]) -> Result<(), Error> {
    delete(tx, "outbox_attempt", seqs).await
}

/// Forgets the attempts of messages that were deleted by hand. Looks at the attempts of at most
/// `messages` messages, and goes on there the next time.
pub(super) async fn sweep(
    tx: &mut MySqlConnection,
    swept: &Round,
    messages: usize,
) -> Result<(), Error> {
    let after = swept.after();
    let sql = format!(
        "SELECT DISTINCT seq FROM outbox_attempt FORCE INDEX (PRIMARY) \
         WHERE seq > {after} ORDER BY seq LIMIT {messages}"
    );
    let seen = numbers(tx, sql).await?;
    swept.note(&seen);
    for part in seen.chunks(LIST) {
        let sql = format!(
            "SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({})",
            list(part)
        );
        let there: HashSet<i64> = numbers(tx, sql).await?.into_iter().collect();
        let gone: Vec<i64> = part.iter().filter(|seq| !there.contains(seq)).copied().collect();
        forget(tx, &gone).await?;
    }
    Ok(())
}

/// Reads one attempt.
pub(super) fn attempt(row: &MySqlRow) -> Result<Attempt, Error> {
    let outcome: String = row.try_get(2)?;
    Ok(Attempt {
        at: super::row::time(row, 0)?,
        took_ms: row.try_get(1)?,
        // A CHECK keeps every other word out.
        outcome: AttemptOutcome::from_word(&outcome).unwrap_or(AttemptOutcome::Retry),
        error: row.try_get(3)?,
        response: row.try_get(4)?,
    })
}
