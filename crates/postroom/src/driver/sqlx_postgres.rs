//! sqlx on PostgreSQL.

use super::{FIND_POSTGRES, INSERT_POSTGRES, OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use postroom_core::{Enqueued, NewMessage, RawJson};
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

impl sealed::Sealed for Transaction<'_, Postgres> {}
impl sealed::Sealed for PgConnection {}

#[async_trait]
impl OutboxTransaction for Transaction<'_, Postgres> {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        (**self).insert(message).await
    }
}

#[async_trait]
impl OutboxTransaction for PgConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let written = sqlx::query(INSERT_POSTGRES)
            .bind(id)
            .bind(message.stream_id())
            .bind(&message.event_id)
            .bind(&message.integration)
            .bind(&message.event_type)
            .bind(message.payload().map(RawJson::as_str))
            .bind(message.headers_json().map(RawJson::as_str))
            .bind(&message.tenant_id)
            .bind(&message.user_id)
            .bind(&message.correlation_id)
            .bind(&message.causation_id)
            .bind(&message.source)
            .bind(&message.ordering_key)
            .bind(message.schema_version)
            .bind(message.copy)
            .bind(message.occurred_at)
            .bind(message.due_at)
            .bind(message.max_attempts)
            .execute(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        if written.rows_affected() == 1 {
            return Ok(Enqueued::New(id));
        }
        let first: Option<(Uuid, bool)> = sqlx::query_as(FIND_POSTGRES)
            .bind(&message.event_id)
            .bind(message.stream_id())
            .bind(&message.integration)
            .bind(message.copy)
            .fetch_optional(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        match first {
            Some((id, true)) => Ok(Enqueued::Duplicate(id)),
            Some((_, false)) => Err(EnqueueError::OldFence),
            None => Err(EnqueueError::Vanished),
        }
    }
}
