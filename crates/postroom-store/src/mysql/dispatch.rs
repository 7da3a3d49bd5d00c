//! Looking up what jobs refer to.

use super::claims::literal;
use super::error::store_error;
use super::follow::lock_messages;
use super::{LIST, MySqlStore, execute, list, now, numbers, row, statements};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, StoreResult, Token};
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

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        let mut seqs = seqs.to_vec();
        // Everybody locks in the same order.
        seqs.sort_unstable();
        let reopen = async || {
            let locking = self.locking().await?;
            let mut tx = self.begin().await?;
            let mut locked = Vec::new();
            let at = now(&mut tx).await?;
            for part in seqs.chunks(LIST) {
                let held = format!(
                    "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
                     WHERE seq IN ({}) AND claim = {} AND failed ",
                    list(part),
                    literal(claim)
                );
                let failed = numbers(&mut tx, held.clone()).await?;
                let held = numbers(&mut tx, held + locking.clause()).await?;
                let free = lock_messages(&mut tx, &held, locking).await?;
                locked.extend(failed.iter().copied().filter(|seq| !free.contains(seq)));
                if free.is_empty() {
                    continue;
                }
                let failed = list(&free);
                let delivery = format!(
                    "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET failed = FALSE \
                     WHERE seq IN ({failed})"
                );
                execute(&mut tx, delivery).await?;
                // A fresh token: no earlier settlement can pass for this one.
                let message = format!(
                    "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
                     SET status = 'PENDING', updated_at = '{at}', settled = {} \
                     WHERE seq IN ({failed}) AND status = 'FAILED'",
                    literal(Token::random())
                );
                execute(&mut tx, message).await?;
            }
            tx.commit().await?;
            Ok(locked)
        };
        reopen().await.map_err(|e| store_error("setting failed messages back to PENDING", e))
    }
}
