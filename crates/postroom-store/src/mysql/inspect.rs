//! Looking closer, for tools that people work with.

use super::columns;
use super::error::store_error;
use super::layout::Rows;
use super::list::{conditions, open_ones};
use super::literal;
use super::row::{count, message_id, record, time};
use super::{LIST, MySqlStore};
use async_trait::async_trait;
use postroom_core::{Arrived, ErrorGroup, Filter, IdPrefix, Inspect, Record, StoreResult};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, QueryBuilder, Row as _};
use uuid::Uuid;

/// After.
const ARRIVED: &str = include_str!("sql/arrived.sql");
/// After, rows, rows.
const UPCOMING: &str = include_str!("sql/upcoming.sql");

#[async_trait]
impl Inspect for MySqlStore {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        let doing = "looking for messages by the beginning of an id";
        if let Some(rows) = &self.rows {
            let found = self.find_rows(rows, prefix, limit).await;
            return found.map_err(|e| store_error(doing, e));
        }
        let Some(ids) = prefix.uuids() else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT {} FROM outbox_messages AS m WHERE m.id BETWEEN ? AND ? ORDER BY m.id LIMIT ?",
            columns::RECORD
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(ids.start().hyphenated())
            .bind(ids.end().hyphenated())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(record).collect())
            .map_err(|e| store_error(doing, e))
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        let mut query = QueryBuilder::new(format!(
            "SELECT m.integration_type, m.last_error, COUNT(*), MIN(m.created_at), \
             MAX(m.created_at), MAX(m.id) FROM {} WHERE m.last_error IS NOT NULL",
            open_ones(filter.status)
        ));
        conditions(&mut query, filter);
        query.push(" GROUP BY m.integration_type, m.last_error ORDER BY 3 DESC, 1, 2 LIMIT ");
        query.push_bind(i64::try_from(filter.limit).unwrap_or(i64::MAX));
        query
            .build()
            .persistent(false)
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(group).collect())
            .map_err(|e| store_error("grouping messages by error", e))
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        sqlx::query(ARRIVED)
            .bind(after)
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(arrived).collect())
            .map_err(|e| store_error("counting new messages", e))
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        sqlx::query_scalar("SELECT COALESCE(MAX(seq), 0) FROM integration_outbox")
            .fetch_one(&self.pool)
            .await
            .map_err(|e| store_error("looking for the newest message", e))
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        sqlx::query_scalar(UPCOMING)
            .bind(after)
            .bind(limit)
            .bind(limit)
            .fetch_all(&self.pool)
            .await
            .map_err(|e| store_error("looking for messages to follow", e))
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        let columns = columns::RECORD.replace("m.payload, m.headers", "NULL, NULL");
        let mut found = Vec::with_capacity(seqs.len());
        for part in seqs.chunks(LIST) {
            let sql = format!(
                "SELECT {columns} FROM outbox_messages AS m WHERE m.seq IN ({})",
                literal::numbers(part.iter().copied())
            );
            let rows = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(&self.pool);
            let records = rows.await.and_then(|rows| rows.iter().map(record).collect());
            let records: Vec<Record> = records.map_err(|e| store_error("following messages", e))?;
            found.extend(records);
        }
        Ok(found)
    }
}

impl MySqlStore {
    /// Rows of somebody else's table whose ids begin so: found in the table first, by its key.
    async fn find_rows(
        &self,
        rows: &Rows,
        prefix: &IdPrefix,
        limit: usize,
    ) -> Result<Vec<Record>, Error> {
        let foreign = rows.foreign(&self.pool).await?;
        let Some((sql, values)) = foreign.begins_with(prefix.as_str()) else {
            return Ok(Vec::new());
        };
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for value in values {
            query = query.bind(value);
        }
        let mut ids: Vec<Uuid> = Vec::new();
        for row in query.fetch_all(&self.pool).await? {
            ids.extend(row.try_get::<&str, _>(0)?.parse::<Uuid>().ok());
        }
        let sql = format!(
            "SELECT {} FROM outbox_messages AS m WHERE m.ledger_id IN ({}) ORDER BY m.seq",
            columns::RECORD,
            literal::ids(&ids)
        );
        let found = sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(&self.pool).await?;
        let records = found.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        let fits = records.into_iter().filter(|record| prefix.matches(&record.message.id));
        Ok(fits.take(limit).collect())
    }
}

fn group(row: &MySqlRow) -> Result<ErrorGroup, Error> {
    Ok(ErrorGroup {
        integration: row.try_get(0)?,
        error: row.try_get(1)?,
        messages: count(row, 2)?,
        oldest: time(row, 3)?,
        newest: time(row, 4)?,
        example: message_id(row, 5)?,
    })
}

fn arrived(row: &MySqlRow) -> Result<Arrived, Error> {
    Ok(Arrived { integration: row.try_get(0)?, messages: count(row, 1)?, last: row.try_get(2)? })
}
