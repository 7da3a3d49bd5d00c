//! Looking closer, for tools that people work with.

use super::SqliteStore;
use super::error::store_error;
use super::json_lists::json;
use super::row::{record, text};
use super::upkeep::count;
use async_trait::async_trait;
use postroom_core::{Arrived, ErrorGroup, Filter, IdPrefix, Inspect, Record, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};

/// `?1` first id, `?2` last id, `?3` rows.
const RANGE: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_messages AS m WHERE m.id BETWEEN ?1 AND ?2 ORDER BY m.id LIMIT ?3"
);

/// `?1` after.
const ARRIVED: &str = "
    SELECT integration_type, count(*), max(seq) FROM integration_outbox
    WHERE seq > ?1 GROUP BY integration_type ORDER BY integration_type";

const LAST_SEQ: &str = "SELECT coalesce(max(seq), 0) FROM integration_outbox";

const UPCOMING: &str = include_str!("sql/upcoming.sql");

/// `?1` numbers.
const STATES: &str = concat!(
    "SELECT ",
    state_columns!(),
    " FROM json_each(?1) AS wanted CROSS JOIN outbox_messages AS m ON m.seq = wanted.value"
);

#[async_trait]
impl Inspect for SqliteStore {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        let (first, last) = match (self.readers.lookup.layout(), prefix.uuids()) {
            (Some(_), _) => {
                (prefix.as_str().to_owned(), format!("{}{}", prefix.as_str(), char::MAX))
            }
            (None, Some(uuids)) => (uuids.start().to_string(), uuids.end().to_string()),
            (None, None) => return Ok(Vec::new()),
        };
        sqlx::query(RANGE)
            .bind(first)
            .bind(last)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.readers)
            .await
            .and_then(|rows| rows.iter().map(record).collect())
            .map_err(|e| store_error("looking for messages by the beginning of an id", e))
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        super::list::errors(self, filter).await
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        sqlx::query(ARRIVED)
            .bind(after)
            .fetch_all(&self.readers)
            .await
            .and_then(|rows| rows.iter().map(arrived).collect())
            .map_err(|e| store_error("counting new messages", e))
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        sqlx::query_scalar(LAST_SEQ)
            .fetch_one(&self.readers)
            .await
            .map_err(|e| store_error("looking for the newest message", e))
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        sqlx::query_scalar(UPCOMING)
            .bind(after)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error("looking for messages to follow", e))
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        sqlx::query(STATES)
            .bind(json(seqs))
            .fetch_all(&self.readers)
            .await
            .and_then(|rows| rows.iter().map(record).collect())
            .map_err(|e| store_error("following messages", e))
    }
}

fn arrived(row: &SqliteRow) -> Result<Arrived, Error> {
    Ok(Arrived { integration: text(row, 0)?, messages: count(row, 1)?, last: row.try_get(2)? })
}
