//! sqlx on PostgreSQL.

use super::{FIND_POSTGRES, INSERT_POSTGRES, OutboxTransaction, enqueue_row, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use postroom_core::{Enqueued, MessageId, NewMessage};
use sqlx::{PgConnection, Postgres};
use uuid::Uuid;

insert_through_connection!(Postgres, PgConnection);

#[async_trait]
impl OutboxTransaction for PgConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let written = bind_message!(INSERT_POSTGRES, id, message, |at| at)
            .execute(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        if written.rows_affected() == 1 {
            return Ok(Enqueued::New(id.into()));
        }
        let first: Option<(Uuid, bool)> = bind_fence!(sqlx::query_as(FIND_POSTGRES), message)
            .fetch_optional(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        match first {
            Some((id, true)) => Ok(Enqueued::Duplicate(id.into())),
            Some((_, false)) => Err(EnqueueError::OldFence),
            None => Err(EnqueueError::Vanished),
        }
    }

    async fn insert_row(
        &mut self,
        table: &str,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let statement = sqlx::AssertSqlSafe(enqueue_row(table));
        let (id, is_new): (String, bool) = bind_row!(sqlx::query_as(statement), message, |at| at)
            .fetch_one(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        let id = MessageId::trusted(&id);
        Ok(if is_new { Enqueued::New(id) } else { Enqueued::Duplicate(id) })
    }
}
