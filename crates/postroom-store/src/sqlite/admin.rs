//! Looking at messages, for tools and tests.

use super::SqliteStore;
use super::error::store_error;
use super::row::{id as id_text, record, text, token};
use super::time::{moment, now_ms};
use super::upkeep::count;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{Admin, Attempt, Filter, MessageId, Record, StatusCounts, StoreResult, Token};
use sqlx::{Error, Row as _};

/// `?1` id.
const FIND: &str =
    concat!("SELECT ", record_columns!(), " FROM outbox_messages AS m WHERE m.id = ?1");
/// Counts by status over the whole table.
const STATUS_COUNTS: &str =
    "SELECT status, count(*) FROM outbox_messages GROUP BY status ORDER BY status";
const INTEGRATIONS: &str = include_str!("sql/integrations.sql");
pub(super) const CLAIM_OF: &str = include_str!("sql/claim_of.sql");

#[async_trait]
impl Admin for SqliteStore {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        let doing = "looking for a message";
        let row = sqlx::query(FIND)
            .bind(id_text(id.to_string()))
            .fetch_optional(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        row.map(|row| record(&row)).transpose().map_err(|e| store_error(doing, e))
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        super::attempts::of(self, id).await
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        super::list::list(self, filter).await
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        let doing = "counting messages by status";
        let rows = sqlx::query(STATUS_COUNTS)
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        let counts = rows
            .iter()
            .map(|row| Ok((text(row, 0)?, count(row, 1)?)))
            .collect::<Result<_, Error>>()
            .map_err(|e| store_error(doing, e))?;
        Ok(StatusCounts { counts })
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        let doing = "listing integrations";
        let rows = sqlx::query(INTEGRATIONS)
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(|row| text(row, 0))
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        let doing = "looking for a claim";
        let row = sqlx::query(CLAIM_OF)
            .bind(worker)
            .bind(id_text(id.to_string()))
            .fetch_optional(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        row.map(|row| Ok::<_, Error>((token(&row, 0)?, row.try_get(1)?)))
            .transpose()
            .map_err(|e| store_error(doing, e))
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        Ok(moment(now_ms()))
    }
}
