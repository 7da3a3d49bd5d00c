//! sqlx on SQLite. Ids and times are text there, in the one format the store writes.

use super::{OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{Enqueued, NewMessage};
use sqlx::{Sqlite, SqliteConnection};
use uuid::Uuid;

const INSERT: &str = include_str!("insert_sqlite.sql");
const FIND: &str = include_str!("find_sqlite.sql");

insert_through_connection!(Sqlite, SqliteConnection);

#[async_trait]
impl OutboxTransaction for SqliteConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let written = bind_message!(INSERT, id.to_string(), message, timestamp)
            .execute(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        if written.rows_affected() == 1 {
            return Ok(Enqueued::New(id.into()));
        }
        let first: Option<String> = bind_fence!(sqlx::query_scalar(FIND), message)
            .fetch_optional(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        let first = first.ok_or(EnqueueError::Vanished)?;
        let id = Uuid::parse_str(&first).map_err(EnqueueError::database)?;
        Ok(Enqueued::Duplicate(id.into()))
    }
}

fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
