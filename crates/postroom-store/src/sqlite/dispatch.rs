//! Looking up what jobs refer to.

use super::claims::json;
use super::error::store_error;
use super::{SqliteStore, row, statements};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, StoreResult};
use uuid::Uuid;

#[async_trait]
impl Dispatches for SqliteStore {
    async fn dispatched(&self, ids: &[Uuid]) -> StoreResult<Vec<Dispatched>> {
        let doing = "reading dispatched messages";
        let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
        let rows = sqlx::query(statements::DISPATCHED)
            .bind(json(&ids))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(row::dispatched)
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }
}
