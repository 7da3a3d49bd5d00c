//! sqlx on MariaDB and MySQL. Times are UTC there, whatever the time zone of the session.

use super::{OutboxTransaction, sealed};
use crate::EnqueueError;
use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{Enqueued, MessageId, NewMessage};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const INSERT: &str = include_str!("insert_mysql.sql");
const FIND: &str = include_str!("find_mysql.sql");
/// The first message may have been committed after this transaction's snapshot was taken; a read
/// that locks sees it all the same. Only where a plain one does not: the lock stays until the
/// transaction ends, and the relay that wants to record an outcome waits for it.
const FIND_AFTER_SNAPSHOT: &str = concat!(include_str!("find_mysql.sql"), "LOCK IN SHARE MODE");

/// The procedure of a ledger.
const ENQUEUE_ROW: &str =
    "CALL `{ledger}`.enqueue(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
/// Postroom's own table, as statements name it.
const OWN: &str = "integration_outbox";

insert_through_connection!(MySql, MySqlConnection);

#[async_trait]
impl OutboxTransaction for MySqlConnection {
    async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
        insert_into(self, OWN, message).await
    }

    /// A row is written by the procedure of its ledger, which is named after the table's database. Postroom's own
    /// table may be in another database too.
    async fn insert_row(
        &mut self,
        table: &str,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        if table.rsplit('.').next().is_some_and(|name| name.trim_matches('`') == OWN) {
            return insert_into(self, table, message).await;
        }
        let database: Option<String> = match table.contains('.') {
            true => None,
            false => sqlx::query_scalar("SELECT DATABASE()")
                .fetch_one(&mut *self)
                .await
                .map_err(EnqueueError::database)?,
        };
        let ledger = postroom_core::ledger_database(table, &database.unwrap_or_default());
        let statement = AssertSqlSafe(ENQUEUE_ROW.replace("{ledger}", &ledger));
        let (id, is_new): (String, bool) = bind_row!(sqlx::query_as(statement), message, in_utc)
            .fetch_one(&mut *self)
            .await
            .map_err(EnqueueError::database)?;
        let id = MessageId::trusted(&id);
        Ok(if is_new { Enqueued::New(id) } else { Enqueued::Duplicate(id) })
    }
}

/// Writes a message to Postroom's own table.
async fn insert_into(
    connection: &mut MySqlConnection,
    table: &str,
    message: &NewMessage,
) -> Result<Enqueued, EnqueueError> {
    let of_table = |sql: &str| AssertSqlSafe(sql.replacen(OWN, table, 1));
    let id = Uuid::now_v7();
    let written = bind_message!(of_table(INSERT), id.hyphenated(), message, in_utc)
        .execute(&mut *connection)
        .await;
    match written {
        Ok(_) => return Ok(Enqueued::New(id.into())),
        // The statement alone is undone; the caller's transaction goes on. INSERT IGNORE would
        // hide every other fault too.
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
        Err(error) => return Err(EnqueueError::database(error)),
    }
    for find in [FIND, FIND_AFTER_SNAPSHOT] {
        let first: Option<Hyphenated> = bind_fence!(sqlx::query_scalar(of_table(find)), message)
            .fetch_optional(&mut *connection)
            .await
            .map_err(EnqueueError::database)?;
        if let Some(id) = first {
            return Ok(Enqueued::Duplicate(Uuid::from(id).into()));
        }
    }
    Err(EnqueueError::Vanished)
}

/// As the columns hold it: a `TIMESTAMP` would be read in the session's time zone.
fn in_utc(at: DateTime<Utc>) -> NaiveDateTime {
    at.naive_utc()
}
