//! Looking at messages, for tools and tests.

use super::PgStore;
use super::connect::ask;
use super::error::store_error;
use super::ids::Id;
use super::row::{RECORD_COLUMNS, record};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{Admin, Attempt, Filter, MessageId, Record, StatusCounts, StoreResult, Token};
use tokio_postgres::Error;

const INTEGRATIONS: &str = include_str!("sql/integrations.sql");
const CLAIM_OF: &str = include_str!("sql/claim_of.sql");
const STATUS_COUNTS: &str =
    "SELECT status, count(*) FROM core_outbox.messages GROUP BY status ORDER BY status";

#[async_trait]
impl Admin for PgStore {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        let doing = "looking for a message";
        let client = self.connection().await?;
        let sql = format!("SELECT {RECORD_COLUMNS} FROM core_outbox.messages WHERE id = $1");
        let row = client.query_opt(&sql, &[&Id(id)]).await.map_err(|e| store_error(doing, e))?;
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
        let client = self.connection().await?;
        let rows = client.query(STATUS_COUNTS, &[]).await.map_err(|e| store_error(doing, e))?;
        let counts = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0))))
            .collect::<Result<_, Error>>()
            .map_err(|e| store_error(doing, e))?;
        Ok(StatusCounts { counts })
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        let doing = "listing integrations";
        let client = self.connection().await?;
        let rows = client.query(INTEGRATIONS, &[]).await.map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        let doing = "looking for a claim";
        let client = self.connection().await?;
        let row = client
            .query_opt(CLAIM_OF, &[&worker, &Id(id)])
            .await
            .map_err(|e| store_error(doing, e))?;
        row.map(|row| Ok::<_, Error>((Token(row.try_get(0)?), row.try_get(1)?)))
            .transpose()
            .map_err(|e| store_error(doing, e))
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        let doing = "reading the clock";
        let client = self.connection().await?;
        client.answer(ask(client.client(), doing, "SELECT clock_timestamp()")).await
    }
}
