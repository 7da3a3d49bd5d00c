//! Taking messages in: many with one statement.

use super::MySqlStore;
use super::error::{enqueue_error, number, store_error};
use super::session::Session;
use crate::intake::{DOING, check, concerning, expect, moved, parts};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom::Outbox;
use postroom_core::{
    Checkpoint, Enqueued, Intake, NewMessage, RawJson, StoreErrorKind, StoreResult,
};
use sqlx::{Error, MySql, QueryBuilder};
use uuid::Uuid;

/// The most messages in one statement, and the most bytes of their content: a statement must fit into
/// the server's max_allowed_packet.
const ROWS: usize = 250;
const BYTES: usize = 512 << 10;

/// A key that is there already.
const DUPLICATE: u16 = 1062;

const INSERT: &str = "INSERT INTO integration_outbox (
    id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
    tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
    schema_version, copy, occurred_at, due_at, max_attempts
) ";

/// Name.
const POSITION: &str = "SELECT position FROM outbox_checkpoint WHERE name = ?";
const LOCK_POSITION: &str = "SELECT position FROM outbox_checkpoint WHERE name = ? FOR UPDATE";

/// Position, name.
const MAKE_CHECKPOINT: &str = "
    INSERT INTO outbox_checkpoint (position, name, updated_at) VALUES (?, ?, UTC_TIMESTAMP(6))";
const MOVE_CHECKPOINT: &str = "
    UPDATE outbox_checkpoint SET position = ?, updated_at = UTC_TIMESTAMP(6) WHERE name = ?";

#[async_trait]
impl Intake for MySqlStore {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        check(batch, checkpoint)?;
        let mut tx = self.begin().await.map_err(|e| store_error(DOING, e))?;
        // First: those who race for it wait here, and not behind each other's messages.
        if let Some(checkpoint) = checkpoint {
            advance(&mut tx, checkpoint).await?;
        }
        let mut answers = Vec::with_capacity(batch.len());
        let outbox = match &self.rows {
            Some(rows) => rows.outbox()?,
            None => Outbox::default(),
        };
        for part in parts(batch, ROWS, BYTES) {
            if self.rows.is_none()
                && let Some(written) = write_at_once(&mut tx, part).await?
            {
                answers.extend(written);
                continue;
            }
            for message in part {
                let enqueued = outbox.enqueue(&mut **tx, message.clone()).await;
                let refused = |error| concerning(answers.len(), batch.len(), enqueue_error(error));
                let enqueued = enqueued.map_err(refused)?;
                answers.push(enqueued);
            }
        }
        tx.commit().await.map_err(|e| store_error(DOING, e))?;
        Ok(answers)
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        sqlx::query_scalar(POSITION)
            .bind(name)
            .fetch_optional(&self.pool)
            .await
            .map_err(|e| store_error("reading a checkpoint", e))
    }
}

/// Moves a checkpoint from the position that its caller expects. Compared here, byte by byte: MySQL
/// before 8.0.17 ignores trailing spaces.
async fn advance(tx: &mut Session, checkpoint: &Checkpoint) -> StoreResult<()> {
    let Checkpoint { name, position, .. } = checkpoint;
    let found = locked(tx, name).await.map_err(|e| store_error(DOING, e))?;
    expect(checkpoint, found.as_deref())?;
    let statement = if found.is_some() { MOVE_CHECKPOINT } else { MAKE_CHECKPOINT };
    match sqlx::query(statement).bind(position).bind(name).execute(&mut *tx).await {
        Ok(_) => Ok(()),
        // Another transaction has made it since we looked.
        Err(error) if number(&error) == Some(DUPLICATE) => {
            let found = locked(tx, name).await.map_err(|e| store_error(DOING, e))?;
            Err(moved(checkpoint, found.as_deref()))
        }
        Err(error) => Err(store_error(DOING, error)),
    }
}

/// The position of a checkpoint, which stays there until the transaction ends.
async fn locked(tx: &mut Session, name: &str) -> Result<Option<String>, Error> {
    sqlx::query_scalar(LOCK_POSITION).bind(name).fetch_optional(tx).await
}

/// Writes several messages with one statement. `None` when there is only one, or when one of them is
/// there already or is refused: the statement alone is undone then, and message by message tells which
/// it was. ON DUPLICATE KEY UPDATE would lock the first message against its relay.
async fn write_at_once(
    tx: &mut Session,
    part: &[NewMessage],
) -> StoreResult<Option<Vec<Enqueued>>> {
    if part.len() < 2 {
        return Ok(None);
    }
    let ids: Vec<Uuid> = part.iter().map(|_| Uuid::now_v7()).collect();
    let mut query = QueryBuilder::<MySql>::new(INSERT);
    query.push_values(part.iter().zip(&ids), |mut row, (message, id)| {
        row.push_bind(id.hyphenated())
            .push_bind(message.stream_id())
            .push_bind(&message.event_id)
            .push_bind(&message.integration)
            .push_bind(&message.event_type)
            .push_bind(message.payload().map(RawJson::as_str))
            .push_bind(message.headers_json().map(RawJson::as_str))
            .push_bind(&message.tenant_id)
            .push_bind(&message.user_id)
            .push_bind(&message.correlation_id)
            .push_bind(&message.causation_id)
            .push_bind(&message.source)
            .push_bind(&message.ordering_key)
            .push_bind(message.schema_version)
            .push_bind(message.copy)
            .push_bind(message.occurred_at.as_ref().map(DateTime::<Utc>::naive_utc))
            .push("COALESCE(")
            .push_bind_unseparated(message.due_at.as_ref().map(DateTime::<Utc>::naive_utc))
            .push_unseparated(", UTC_TIMESTAMP(6))")
            .push_bind(message.max_attempts);
    });
    match query.build().persistent(false).execute(tx).await {
        Ok(_) => Ok(Some(ids.into_iter().map(|id| Enqueued::New(id.into())).collect())),
        Err(error) if number(&error) == Some(DUPLICATE) => Ok(None),
        Err(error) => {
            let error = store_error(DOING, error);
            if error.kind == StoreErrorKind::Refused { Ok(None) } else { Err(error) }
        }
    }
}
