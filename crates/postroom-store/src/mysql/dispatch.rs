//! Looking up what jobs refer to.

use super::error::store_error;
use super::{LIST, MySqlStore, row, statements};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, StoreResult};
use sqlx::{Error, MySql, QueryBuilder};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

#[async_trait]
impl Dispatches for MySqlStore {
    async fn dispatched(&self, ids: &[Uuid]) -> StoreResult<Vec<Dispatched>> {
        let read = async || {
            let mut dispatched = Vec::with_capacity(ids.len());
            for part in ids.chunks(LIST) {
                let mut query: QueryBuilder<MySql> = QueryBuilder::new(statements::DISPATCHED);
                query.push_tuples(part, |mut one, id| {
                    one.push_bind(Hyphenated::from_uuid(*id));
                });
                let rows = query.build().persistent(false).fetch_all(&self.pool).await?;
                for row in &rows {
                    dispatched.push(row::dispatched(row)?);
                }
            }
            Ok::<_, Error>(dispatched)
        };
        read().await.map_err(|e| store_error("reading dispatched messages", e))
    }
}
