//! Looking at messages, for tools and tests.

use super::error::store_error;
use super::parcels::{held_parcels, in_flight};
use super::row::{count, record};
use super::{MySqlStore, attempts, columns};
use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{Admin, Attempt, Filter, MessageId, Record, StatusCounts, StoreResult, Token};
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::collections::HashSet;
use uuid::Uuid;

const ATTEMPTS_OF: &str = include_str!("sql/attempts_of.sql");
const STATUS_COUNTS: &str = include_str!("sql/status_counts.sql");
pub(super) const INTEGRATIONS: &str = include_str!("sql/integrations.sql");
const CLAIM_OF: &str = include_str!("sql/claim_of.sql");
const WORKER_OF: &str = include_str!("sql/worker_of.sql");

#[async_trait]
impl Admin for MySqlStore {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        let Some(id) = self.id_of(id) else { return Ok(None) };
        let sql = format!(
            "SELECT {} FROM outbox_messages AS m WHERE {} = ?",
            columns::RECORD,
            self.id_column()
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(id.hyphenated())
            .fetch_optional(&self.pool)
            .await
            .and_then(|row| row.map(|row| record(&row)).transpose())
            .map_err(|e| store_error("looking for a message", e))
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        let Some(id) = self.id_of(id) else { return Ok(Vec::new()) };
        sqlx::query(ATTEMPTS_OF)
            .bind(id.hyphenated())
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| rows.iter().map(attempts::attempt).collect())
            .map_err(|e| store_error("reading attempts", e))
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        self.list_messages(filter).await.map_err(|e| store_error("listing messages", e))
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        let rows = sqlx::query(STATUS_COUNTS).fetch_all(&self.pool).await;
        let counts = rows.and_then(|rows| {
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, count(row, 1)?)))
                .collect::<Result<_, Error>>()
        });
        let counts = counts.map_err(|e| store_error("counting messages by status", e))?;
        Ok(StatusCounts { counts })
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        sqlx::query_scalar(INTEGRATIONS)
            .fetch_all(&self.pool)
            .await
            .map_err(|e| store_error("listing integrations", e))
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        let Some(id) = self.id_of(id) else { return Ok(None) };
        self.find_claim(worker, id).await.map_err(|e| store_error("looking for a claim", e))
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        let now: NaiveDateTime = sqlx::query_scalar("SELECT UTC_TIMESTAMP(6)")
            .fetch_one(&self.pool)
            .await
            .map_err(|e| store_error("reading the database's clock", e))?;
        Ok(now.and_utc())
    }
}

impl MySqlStore {
    /// The claim of a worker on a message: on its delivery, or on the parcel that names it.
    async fn find_claim(&self, worker: &str, id: Uuid) -> Result<Option<(Token, i64)>, Error> {
        let on_delivery: Option<(Uuid, i64)> = sqlx::query_as(CLAIM_OF)
            .bind(id.hyphenated())
            .bind(worker)
            .fetch_optional(&self.pool)
            .await?;
        if let Some((token, seq)) = on_delivery {
            return Ok(Some((Token(token), seq)));
        }
        let mut tx = self.pool.snapshot().await?;
        let in_flight = in_flight(&mut tx).await?;
        let mut found = None;
        for (parcel, token) in in_flight.of(&HashSet::from([id])) {
            let held = held_parcels(&mut tx, std::slice::from_ref(parcel)).await?;
            let whose: Option<String> =
                sqlx::query_scalar(WORKER_OF).bind(token.0).fetch_optional(&mut *tx).await?;
            if held.iter().any(|held| !held.is_outranked) && whose.as_deref() == Some(worker) {
                found = Some((token, parcel.message.seq));
            }
        }
        tx.commit().await?;
        Ok(found)
    }
}
