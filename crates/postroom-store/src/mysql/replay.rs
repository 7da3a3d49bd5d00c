//! Sent messages again, as new rows.

use super::key::Key;
use super::session::Session;
use postroom_core::REPLAY_HEADER;
use sqlx::Error;
use uuid::Uuid;

/// Locked, so that one message is not replayed twice at once under the same copy. Number, id.
const LOCK: &str = include_str!("sql/lock_sent.sql");
/// The next ordinal of an event to an integration. Event, stream, integration.
const NEXT_COPY: &str = include_str!("sql/next_copy.sql");
/// Id, event id, copy, the path of the header, the number of the row to copy.
const REPLAY: &str = include_str!("sql/replay.sql");

/// Copies what is SENT; the ids of the copies.
pub(super) async fn replay(
    tx: &mut Session,
    keys: &[Key],
    fresh_ids: bool,
) -> Result<Vec<Uuid>, Error> {
    let header = format!("$.\"{REPLAY_HEADER}\"");
    let mut keys = keys.to_vec();
    keys.sort_unstable_by_key(|key| key.seq);
    let mut copies = Vec::new();
    for key in keys {
        let sent: Option<(String, String, String)> = sqlx::query_as(LOCK)
            .bind(key.seq)
            .bind(key.id.hyphenated())
            .fetch_optional(&mut *tx)
            .await?;
        let Some((event, stream, integration)) = sent else { continue };
        let (event, copy) = if fresh_ids {
            (Uuid::now_v7().to_string(), 0)
        } else {
            let copy: i64 = sqlx::query_scalar(NEXT_COPY)
                .bind(&event)
                .bind(&stream)
                .bind(&integration)
                .fetch_one(&mut *tx)
                .await?;
            (event, copy)
        };
        let id = Uuid::now_v7();
        sqlx::query(REPLAY)
            .bind(id.hyphenated())
            .bind(&event)
            .bind(copy)
            .bind(&header)
            .bind(key.seq)
            .execute(&mut *tx)
            .await?;
        copies.push(id);
    }
    Ok(copies)
}
