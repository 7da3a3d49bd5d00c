//! Looking at messages, for tools and tests.

use super::error::store_error;
use super::row::{count, record};
use super::{MySqlStore, attempts, statements};
use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{Admin, Attempt, Filter, Record, Status, StatusCounts, StoreResult, Token};
use sqlx::{AssertSqlSafe, Error, MySql, QueryBuilder, Row as _};
use uuid::Uuid;

#[async_trait]
impl Admin for MySqlStore {
    async fn find(&self, id: Uuid) -> StoreResult<Option<Record>> {
        let sql = format!("SELECT {} FROM outbox_messages AS m WHERE m.id = ?", statements::RECORD);
        sqlx::query(AssertSqlSafe(sql))
            .bind(id.hyphenated())
            .fetch_optional(&self.pool)
            .await
            .and_then(|row| row.map(|row| record(&row)).transpose())
            .map_err(|e| store_error("looking for a message", e))
    }

    async fn attempts(&self, id: Uuid) -> StoreResult<Vec<Attempt>> {
        sqlx::query(statements::ATTEMPTS)
            .bind(id.hyphenated())
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(attempts::attempt).collect())
            .map_err(|e| store_error("reading attempts", e))
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        matching(filter)
            .build()
            .persistent(false)
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(record).collect())
            .map_err(|e| store_error("listing messages", e))
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        let rows = sqlx::query(statements::STATUS_COUNTS).fetch_all(&self.pool).await;
        let counts = rows.and_then(|rows| {
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, count(row, 1)?)))
                .collect::<Result<_, Error>>()
        });
        let counts = counts.map_err(|e| store_error("counting messages by status", e))?;
        Ok(StatusCounts { counts })
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        sqlx::query_scalar(statements::INTEGRATIONS)
            .fetch_all(&self.pool)
            .await
            .map_err(|e| store_error("listing integrations", e))
    }

    async fn claim_of(&self, worker: &str, id: Uuid) -> StoreResult<Option<(Token, i64)>> {
        let row: Result<Option<(Uuid, i64)>, Error> = sqlx::query_as(statements::CLAIM_OF)
            .bind(id.hyphenated())
            .bind(worker)
            .fetch_optional(&self.pool)
            .await;
        let row = row.map_err(|e| store_error("looking for a claim", e))?;
        Ok(row.map(|(token, seq)| (Token(token), seq)))
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        let now: NaiveDateTime = sqlx::query_scalar("SELECT UTC_TIMESTAMP(6)")
            .fetch_one(&self.pool)
            .await
            .map_err(|e| store_error("reading the database's clock", e))?;
        Ok(now.and_utc())
    }
}

/// The messages of a filter, newest first.
fn matching(filter: &Filter) -> QueryBuilder<MySql> {
    let mut query = QueryBuilder::new(format!(
        "SELECT {} FROM outbox_messages AS m WHERE TRUE",
        statements::RECORD
    ));
    conditions(&mut query, filter);
    query.push(" ORDER BY m.seq DESC LIMIT ");
    query.push_bind(i64::try_from(filter.limit).unwrap_or(i64::MAX));
    query
}

/// What a filter asks of `outbox_messages AS m`.
pub(super) fn conditions(query: &mut QueryBuilder<MySql>, filter: &Filter) {
    if let Some(status) = filter.status {
        query.push(" AND m.status = ").push_bind(status.as_str());
        // What is not SENT has a delivery: only such messages are looked at.
        let queues = match status {
            Status::Sent => None,
            Status::Pending | Status::Failed | Status::Dead => Some("0, 1, 3"),
            Status::Claimed => Some("2"),
        };
        if let Some(queues) = queues {
            query.push(" AND m.seq IN (SELECT seq FROM outbox_delivery WHERE queue IN (");
            query.push(queues).push("))");
        }
    }
    let texts = [
        ("integration_type", &filter.integration),
        ("tenant_id", &filter.tenant),
        ("event_type", &filter.event_type),
        ("correlation_id", &filter.correlation),
        ("source_event_id", &filter.event_id),
        ("source_stream_id", &filter.stream),
    ];
    for (column, wanted) in texts {
        if let Some(wanted) = wanted {
            query.push(format!(" AND m.{column} = ")).push_bind(wanted.clone());
        }
    }
    if let Some(since) = filter.since {
        query.push(" AND m.created_at >= ").push_bind(since.naive_utc());
    }
    if let Some(until) = filter.until {
        query.push(" AND m.created_at < ").push_bind(until.naive_utc());
    }
    if let Some(before) = filter.before {
        query.push(" AND m.seq < ").push_bind(before);
    }
    if let Some(error) = &filter.error {
        query.push(" AND LOCATE(LOWER(").push_bind(error.clone());
        query.push("), LOWER(m.last_error)) > 0");
    }
}
