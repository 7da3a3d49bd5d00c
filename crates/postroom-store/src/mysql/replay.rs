//! Sent messages again, as new rows.

use postroom_core::{Key, REPLAY_HEADER};
use sqlx::{Error, MySqlConnection};
use uuid::Uuid;

/// Locked, so that one message is not replayed twice at once under the same copy.
const LOCK: &str = "
    SELECT source_event_id, source_stream_id, integration_type FROM integration_outbox AS m
    WHERE seq = ? AND id = ? AND status = 'SENT'
      -- Set to SENT by hand during an attempt, it is still on its way.
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.seq = m.seq)
    FOR UPDATE";

/// The next ordinal of an event to an integration. Event, stream, integration.
const NEXT_COPY: &str = "
    SELECT MAX(copy) + 1 FROM integration_outbox
    WHERE source_event_id = ? AND source_stream_id = ? AND integration_type = ?";

/// Id, event id, copy, the path of the header, the number of the row to copy. Everything else is as it was, or has its
/// default; the header says where it comes from.
const INSERT: &str = "
    INSERT INTO integration_outbox (
        id, source_event_id, copy, source_stream_id, integration_type, event_type, payload,
        headers, tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
        schema_version, occurred_at, max_attempts
    )
    SELECT ?, ?, ?, source_stream_id, integration_type, event_type, payload,
           JSON_SET(COALESCE(headers, '{}'), ?, id),
           tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
           schema_version, occurred_at, max_attempts
    FROM integration_outbox WHERE seq = ?";

/// Copies what is SENT; the ids of the copies.
pub(super) async fn replay(
    tx: &mut MySqlConnection,
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
        sqlx::query(INSERT)
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
