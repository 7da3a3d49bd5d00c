//! Looking closer, for tools that people work with.

use super::PgStore;
use super::connect::ask;
use super::error::store_error;
use super::ids::{Highest, Lowest};
use super::row::{RECORD_COLUMNS, STATE_COLUMNS, record};
use super::transaction::{BEGIN_DURABLE, transact};
use async_trait::async_trait;
use postroom_core::{Arrived, ErrorGroup, Filter, IdPrefix, Inspect, Record, StoreResult};
use tokio_postgres::{Error, Row};

const ARRIVED: &str = "SELECT integration_type, count(*), max(seq) \
    FROM core_outbox.integration_outbox WHERE seq > $1 GROUP BY integration_type ORDER BY 1";
const LAST_SEQ: &str = "SELECT coalesce(max(seq), 0) FROM core_outbox.integration_outbox";
const UPCOMING: &str = "
    (SELECT seq FROM core_outbox.integration_outbox WHERE seq > $1 ORDER BY seq LIMIT $2)
    UNION
    (SELECT next.seq FROM (
         (SELECT seq, due_at FROM core_outbox.delivery
          WHERE state IN ('w', 'f') ORDER BY due_at, seq LIMIT $2)
         UNION ALL
         SELECT m.seq, m.due_at
         FROM (SELECT unnest(refs) AS id
               FROM (SELECT refs FROM core_outbox.parcel ORDER BY due_at LIMIT $2) AS first) AS fresh
         JOIN core_outbox.integration_outbox m ON m.id = fresh.id
         WHERE m.status IN ('PENDING', 'FAILED')
     ) AS next ORDER BY next.due_at, next.seq LIMIT $2)";

#[async_trait]
impl Inspect for PgStore {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        let doing = "looking for messages by the beginning of an id";
        let client = self.connection().await?;
        let sql = format!(
            "SELECT {RECORD_COLUMNS} FROM core_outbox.messages \
             WHERE id /*text: COLLATE \"C\" */ BETWEEN $1 AND $2 \
             ORDER BY id /*text: COLLATE \"C\" */ LIMIT $3"
        );
        let statement = client.prepare_cached(&sql).await.map_err(|e| store_error(doing, e))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = transact(
            &client,
            BEGIN_DURABLE,
            &statement,
            &[&Lowest(prefix), &Highest(prefix), &limit],
        )
        .await
        .map_err(|e| store_error(doing, e))?;
        rows.iter().map(record).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        super::list::errors(self, filter).await
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        let doing = "counting new messages";
        let client = self.connection().await?;
        let rows = client.query(ARRIVED, &[&after]).await.map_err(|e| store_error(doing, e))?;
        rows.iter().map(arrived).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        let client = self.connection().await?;
        ask(client.client(), "looking for the newest message", &client.put(LAST_SEQ)).await
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        let doing = "looking for messages to follow";
        let client = self.connection().await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client.query(UPCOMING, &[&after, &limit]).await;
        let rows = rows.map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        let doing = "following messages";
        let client = self.connection().await?;
        let sql = format!("SELECT {STATE_COLUMNS} FROM core_outbox.messages WHERE seq = ANY ($1)");
        let statement = client.prepare_cached(&sql).await.map_err(|e| store_error(doing, e))?;
        let rows = transact(&client, BEGIN_DURABLE, &statement, &[&seqs]).await;
        let rows = rows.map_err(|e| store_error(doing, e))?;
        rows.iter().map(record).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
    }
}

fn arrived(row: &Row) -> Result<Arrived, Error> {
    Ok(Arrived {
        integration: row.try_get(0)?,
        messages: u64::try_from(row.try_get::<_, i64>(1)?).unwrap_or(0),
        last: row.try_get(2)?,
    })
}
