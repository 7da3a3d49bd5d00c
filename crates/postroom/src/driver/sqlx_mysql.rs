//! sqlx on MariaDB and MySQL. Times are UTC there, whatever the time zone of the session.

use super::{OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{Enqueued, NewMessage};
use sqlx::{MySql, MySqlConnection};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const INSERT: &str = include_str!("insert_mysql.sql");
const FIND: &str = include_str!("find_mysql.sql");
/// The first message may have been committed after this transaction's snapshot was taken; a read
/// that locks sees it all the same. Only where a plain one does not: the lock stays until the
/// transaction ends, and the relay that wants to record an outcome waits for it.
const FIND_AFTER_SNAPSHOT: &str = concat!(include_str!("find_mysql.sql"), "LOCK IN SHARE MODE");

insert_through_connection!(MySql, MySqlConnection);

#[async_trait]
impl OutboxTransaction for MySqlConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        let id = Uuid::now_v7();
        let written =
            bind_message!(INSERT, id.hyphenated(), message, in_utc).execute(&mut *self).await;
        match written {
            Ok(_) => return Ok(Enqueued::New(id.into())),
            // The statement alone is undone; the caller's transaction goes on. INSERT IGNORE
            // would hide every other fault too.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
            Err(error) => return Err(EnqueueError::database(error)),
        }
        for find in [FIND, FIND_AFTER_SNAPSHOT] {
            let first: Option<Hyphenated> = bind_fence!(sqlx::query_scalar(find), message)
                .fetch_optional(&mut *self)
                .await
                .map_err(EnqueueError::database)?;
            if let Some(id) = first {
                return Ok(Enqueued::Duplicate(Uuid::from(id).into()));
            }
        }
        Err(EnqueueError::Vanished)
    }
}

/// As the columns hold it: a `TIMESTAMP` would be read in the session's time zone.
fn in_utc(at: DateTime<Utc>) -> NaiveDateTime {
    at.naive_utc()
}
