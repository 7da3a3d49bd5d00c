//! sqlx on SQLite. Ids and times are text there, in the one format the store writes.

use super::{OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{Enqueued, NewMessage, RawJson};
use sqlx::{Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

const INSERT: &str = include_str!("insert_sqlite.sql");
const FIND: &str = include_str!("find_sqlite.sql");

impl sealed::Sealed for Transaction<'_, Sqlite> {}
impl sealed::Sealed for SqliteConnection {}

#[async_trait]
impl OutboxTransaction for Transaction<'_, Sqlite> {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        (**self).insert(message).await
    }
}

#[async_trait]
impl OutboxTransaction for SqliteConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let written = sqlx::query(INSERT)
            .bind(id.to_string())
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
            .bind(message.occurred_at.map(timestamp))
            .bind(message.due_at.map(timestamp))
            .bind(message.max_attempts)
            .execute(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        if written.rows_affected() == 1 {
            return Ok(Enqueued::New(id));
        }
        let first: Option<String> = sqlx::query_scalar(FIND)
            .bind(&message.event_id)
            .bind(message.stream_id())
            .bind(&message.integration)
            .bind(message.copy)
            .fetch_optional(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        let first = first.ok_or(EnqueueError::Vanished)?;
        Uuid::parse_str(&first).map(Enqueued::Duplicate).map_err(EnqueueError::database)
    }
}

fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
