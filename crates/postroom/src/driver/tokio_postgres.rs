//! tokio-postgres.

use super::{FIND_POSTGRES, INSERT_POSTGRES, OutboxTransaction, enqueue_row, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use postroom_core::{Enqueued, MessageId, NewMessage, RawJson};
use tokio_postgres::types::Type;
use uuid::Uuid;

impl sealed::Sealed for tokio_postgres::Transaction<'_> {}

#[async_trait]
impl OutboxTransaction for tokio_postgres::Transaction<'_> {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let stream = message.stream_id();
        let payload = message.payload().map(RawJson::as_str);
        let headers = message.headers_json().map(RawJson::as_str);
        // Typed and unnamed: one round trip, and nothing a pooler in transaction mode minds.
        let written = self
            .execute_typed(
                INSERT_POSTGRES,
                &[
                    (&id, Type::UUID),
                    (&stream, Type::VARCHAR),
                    (&message.event_id, Type::VARCHAR),
                    (&message.integration, Type::VARCHAR),
                    (&message.event_type, Type::VARCHAR),
                    (&payload, Type::TEXT),
                    (&headers, Type::TEXT),
                    (&message.tenant_id, Type::VARCHAR),
                    (&message.user_id, Type::VARCHAR),
                    (&message.correlation_id, Type::VARCHAR),
                    (&message.causation_id, Type::VARCHAR),
                    (&message.source, Type::VARCHAR),
                    (&message.ordering_key, Type::VARCHAR),
                    (&message.schema_version, Type::INT4),
                    (&message.copy, Type::INT4),
                    (&message.occurred_at, Type::TIMESTAMPTZ),
                    (&message.due_at, Type::TIMESTAMPTZ),
                    (&message.max_attempts, Type::INT4),
                ],
            )
            .await
            .map_err(EnqueueError::database)?;
        if written == 1 {
            return Ok(Enqueued::New(id.into()));
        }
        let rows = self
            .query_typed(
                FIND_POSTGRES,
                &[
                    (&message.event_id, Type::VARCHAR),
                    (&stream, Type::VARCHAR),
                    (&message.integration, Type::VARCHAR),
                    (&message.copy, Type::INT4),
                ],
            )
            .await
            .map_err(EnqueueError::database)?;
        let first = rows.first().ok_or(EnqueueError::Vanished)?;
        if !first.try_get::<_, bool>(1).map_err(EnqueueError::database)? {
            return Err(EnqueueError::OldFence);
        }
        let id: Uuid = first.try_get(0).map_err(EnqueueError::database)?;
        Ok(Enqueued::Duplicate(id.into()))
    }

    async fn insert_row(
        &mut self,
        table: &str,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let payload = message.payload().map(RawJson::as_str);
        let headers = message.headers_json().map(RawJson::as_str);
        let row = self
            .query_typed_one(
                &enqueue_row(table),
                &[
                    (&message.integration, Type::TEXT),
                    (&message.event_type, Type::TEXT),
                    (&payload, Type::TEXT),
                    (&message.stream_id(), Type::TEXT),
                    (&message.event_id, Type::TEXT),
                    (&headers, Type::TEXT),
                    (&message.tenant_id, Type::TEXT),
                    (&message.user_id, Type::TEXT),
                    (&message.correlation_id, Type::TEXT),
                    (&message.due_at, Type::TIMESTAMPTZ),
                    (&message.max_attempts, Type::INT4),
                    (&message.ordering_key, Type::TEXT),
                    (&message.causation_id, Type::TEXT),
                    (&message.source, Type::TEXT),
                    (&message.schema_version, Type::INT4),
                    (&message.occurred_at, Type::TIMESTAMPTZ),
                    (&message.copy, Type::INT4),
                ],
            )
            .await
            .map_err(EnqueueError::database)?;
        let id: &str = row.try_get(0).map_err(EnqueueError::database)?;
        let id = MessageId::trusted(id);
        let is_new: bool = row.try_get(1).map_err(EnqueueError::database)?;
        Ok(if is_new { Enqueued::New(id) } else { Enqueued::Duplicate(id) })
    }
}
