//! Reading what was taken.

use super::claims::Candidate;
use super::json_lists::json;
use super::row::taken;
use super::session::Session;
use postroom_core::{Take, Taken};
use sqlx::Error;

pub(super) const READ: &str =
    concat!("SELECT ", include_str!("sql/message_columns.sql"), include_str!("sql/content.sql"));

/// The messages of what was taken, in its order. The transaction that looked at them still holds the write
/// lock: they are there.
pub(super) async fn read(
    tx: &mut Session,
    take: &Take<'_>,
    candidates: &[Candidate],
) -> Result<Vec<Taken>, Error> {
    let limit = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let seqs: Vec<i64> = candidates.iter().map(|candidate| candidate.seq).collect();
    let rows = sqlx::query(READ)
        .bind(json(&seqs))
        .bind(limit(take.payload_limit))
        .bind(limit(take.headers_limit()))
        .fetch_all(tx)
        .await?;
    let messages = rows.iter().zip(candidates);
    messages
        .map(|(row, candidate)| taken(row, candidate.rescues, candidate.dispatch, take))
        .collect()
}
