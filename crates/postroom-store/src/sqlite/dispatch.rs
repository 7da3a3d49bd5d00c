//! Looking up what jobs refer to.

use super::error::store_error;
use super::json_lists::{ids, json, json_ids};
use super::time::{now_ms, text};
use super::{SqliteStore, row};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, MessageId, StoreResult, Token};
use sqlx::Error;

pub(super) const DISPATCHED: &str =
    concat!("SELECT ", include_str!("sql/message_columns.sql"), include_str!("sql/dispatched.sql"));
pub(super) const REOPEN: &str = include_str!("sql/reopen.sql");
const MARK_REOPENED: &str = include_str!("sql/reopen_message.sql");

#[async_trait]
impl Dispatches for SqliteStore {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        let doing = "reading dispatched messages";
        let rows = sqlx::query(DISPATCHED)
            .bind(json_ids(ids))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        rows.iter()
            .map(row::dispatched)
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        let doing = "setting failed messages back to PENDING";
        let mut tx = self.begin(doing).await?;
        let reopen = async {
            let failed = sqlx::query(REOPEN)
                .bind(claim.0.to_string())
                .bind(json(seqs))
                .fetch_all(&mut tx)
                .await?;
            // A fresh token: no earlier settlement can pass for this one.
            sqlx::query(MARK_REOPENED)
                .bind(Token::random().0.to_string())
                .bind(json_ids(&ids(&failed)?))
                .bind(text(now_ms()))
                .execute(&mut tx)
                .await?;
            tx.commit().await?;
            // There is one writer at a time: nobody else has a single row locked.
            Ok(Vec::new())
        };
        reopen.await.map_err(|e: Error| store_error(doing, e))
    }
}
