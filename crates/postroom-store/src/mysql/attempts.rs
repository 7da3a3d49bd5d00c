//! The history of failed attempts.

use super::error::store_error;
use super::key::Key;
use super::literal::{self, filled};
use super::session::Session;
use super::{LIST, MySqlStore, execute, execute_each, fetch};
use crate::round::Round;
use chrono::NaiveDateTime;
use postroom_core::{
    ATTEMPTS_KEPT, Attempt, AttemptOutcome, MessageId, StoreResult, clip_error, clip_response,
};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, MySql, QueryBuilder, Row as _};
use std::collections::HashMap;
use std::time::Duration;

const LAST_NUMBERS: &str = include_str!("sql/note_attempts.sql");
const FORGET_OLDEST: &str = "DELETE FROM outbox_attempt WHERE seq = ? AND number <= ?";
const FORGET: &str = include_str!("sql/forget_attempts.sql");
/// Id of the message.
const LATEST: &str = include_str!("sql/latest_attempt.sql");
/// Response, number of the message, number of the attempt.
const KEEP_RESPONSE: &str =
    "UPDATE outbox_attempt SET response = ? WHERE seq = ? AND number = ? AND response IS NULL";
const SWEEP: &str = include_str!("sql/sweep_attempts.sql");
const STRAY: &str = include_str!("sql/stray_attempts.sql");

/// A failed attempt that goes on record.
pub(super) struct Failure<'a> {
    pub(super) key: Key,
    pub(super) took: Duration,
    pub(super) outcome: AttemptOutcome,
    pub(super) error: &'a str,
}

/// Puts failed attempts on record, at most one of each message, and forgets the oldest of
/// messages that have too many. The messages are locked, so that nobody else counts them.
pub(super) async fn record(
    tx: &mut Session,
    failures: &[Failure<'_>],
    at: NaiveDateTime,
) -> Result<(), Error> {
    let kept = i32::try_from(ATTEMPTS_KEPT).unwrap_or(i32::MAX);
    for part in failures.chunks(LIST) {
        let last = last_numbers(tx, part).await?;
        let number = |seq: i64| last.get(&seq).map_or(1, |last| last.saturating_add(1));
        let mut insert: QueryBuilder<MySql> = QueryBuilder::new(
            "INSERT INTO outbox_attempt (seq, message_id, number, at, took_ms, outcome, error) ",
        );
        insert.push_values(part, |mut row, failure| {
            row.push_bind(failure.key.seq)
                .push_bind(failure.key.id.hyphenated())
                .push_bind(number(failure.key.seq))
                .push_bind(at)
                .push_bind(u64::try_from(failure.took.as_millis()).unwrap_or(u64::MAX))
                .push_bind(failure.outcome.as_str())
                .push_bind(clip_error(failure.error));
        });
        insert.build().persistent(false).execute(&mut *tx).await?;
        for seq in last.keys().copied().filter(|seq| number(*seq) > kept) {
            let before = number(seq) - kept;
            sqlx::query(FORGET_OLDEST).bind(seq).bind(before).execute(&mut *tx).await?;
        }
    }
    Ok(())
}

/// The number of each message's last attempt, where there was one.
async fn last_numbers(
    tx: &mut Session,
    failures: &[Failure<'_>],
) -> Result<HashMap<i64, i32>, Error> {
    let seqs = literal::numbers(failures.iter().map(|failure| failure.key.seq));
    let sql = filled(LAST_NUMBERS, &[("seqs", &seqs)]);
    fetch(tx, sql).await?.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Keeps what receivers answered with the latest attempts.
pub(super) async fn keep_responses(
    store: &MySqlStore,
    responses: &[(MessageId, String)],
) -> StoreResult<()> {
    let failed = |error| store_error("keeping responses", error);
    for (id, response) in responses {
        let Some(id) = store.id_of(id) else { continue };
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
pub(super) async fn forget(tx: &mut Session, seqs: &[i64]) -> Result<(), Error> {
    let forget = |seq: &i64| filled(FORGET, &[("seq", &seq.to_string())]);
    execute_each(tx, seqs.iter().map(forget)).await
}

/// Forgets the attempts of messages that were deleted by hand, or whose number another has. Looks at the attempts of at most
/// `messages` messages, and goes on there the next time.
pub(super) async fn sweep(tx: &mut Session, swept: &Round, messages: usize) -> Result<(), Error> {
    let (after, messages) = (swept.after().to_string(), messages.to_string());
    let sql = filled(SWEEP, &[("after", &after), ("messages", &messages)]);
    let seen =
        fetch(tx, sql).await?.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    swept.note(&seen);
    for part in seen.chunks(LIST) {
        let sql = filled(STRAY, &[("seqs", &literal::numbers(part.iter().copied()))]);
        for row in fetch(tx, sql).await? {
            let (seq, number): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
            let sql = format!("DELETE FROM outbox_attempt WHERE seq = {seq} AND number = {number}");
            execute(tx, sql).await?;
        }
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
