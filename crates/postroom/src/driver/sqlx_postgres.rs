//! sqlx on PostgreSQL.

use super::{FIND_POSTGRES, INSERT_POSTGRES, OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use postroom_core::{Enqueued, NewMessage};
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
}
