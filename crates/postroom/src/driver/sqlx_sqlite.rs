//! sqlx on SQLite. Ids and times are text there, in the one format the store writes.
//!
//! Where somebody else made the message table, its ledger has a view `LEDGER_integration_outbox` of it: triggers of the
//! view write the row, and no ON CONFLICT can be said to it.

use super::{OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{Enqueued, MessageId, NewMessage};
use sqlx::error::ErrorKind;
use sqlx::{AssertSqlSafe, Error, Sqlite, SqliteConnection};
use uuid::Uuid;

const INSERT: &str = concat!(include_str!("insert_sqlite.sql"), "ON CONFLICT DO NOTHING");
/// The same goes to the view.
const INSERT_INTO_VIEW: &str = include_str!("insert_sqlite.sql");
const FIND: &str = include_str!("find_sqlite.sql");
/// The row that was written last, which the trigger has noted.
const FIND_ROW: &str = "SELECT m.id FROM {ledger}_enqueued AS last CROSS JOIN integration_outbox AS m ON m.seq = last.seq";
/// From the newest on: an event that comes twice mostly does so at once. `$1` event id.
const FIND_FIRST_ROW: &str =
    "SELECT id FROM integration_outbox WHERE source_event_id = $1 ORDER BY seq DESC LIMIT 1";

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

    /// The trigger of the view writes the row.
    async fn insert_row(
        &mut self,
        table: &str,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let ledger = &postroom_core::ledger_schema(table);
        let insert = of_ledger(INSERT_INTO_VIEW, ledger);
        let written =
            bind_message!(insert, None::<String>, message, timestamp).execute(&mut *self).await;
        match written {
            Ok(_) => {
                let id: Option<String> = sqlx::query_scalar(of_ledger(FIND_ROW, ledger))
                    .fetch_optional(&mut *self)
                    .await
                    .map_err(EnqueueError::database)?;
                let id = id.ok_or(EnqueueError::Vanished)?;
                Ok(Enqueued::New(MessageId::trusted(&id)))
            }
            Err(Error::Database(refused)) if refused.kind() == ErrorKind::UniqueViolation => {
                let first: Option<String> = sqlx::query_scalar(of_ledger(FIND_FIRST_ROW, ledger))
                    .bind(&message.event_id)
                    .fetch_optional(&mut *self)
                    .await
                    .map_err(EnqueueError::database)?;
                match first {
                    Some(first) => Ok(Enqueued::Duplicate(MessageId::trusted(&first))),
                    // Another unique column of the table refused it.
                    None => Err(EnqueueError::database(Error::Database(refused))),
                }
            }
            Err(error) => Err(EnqueueError::database(error)),
        }
    }
}

/// A statement, for the ledger of this name: a letter, then letters, digits and underscores.
fn of_ledger(sql: &str, ledger: &str) -> AssertSqlSafe<String> {
    let view = format!("{ledger}_integration_outbox");
    AssertSqlSafe(sql.replace("integration_outbox", &view).replace("{ledger}", ledger))
}

fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
