//! Looking up what jobs refer to.

use super::columns;
use super::deliveries::lock_messages;
use super::error::store_error;
use super::key::Key;
use super::literal::{self, filled};
use super::{LIST, MySqlStore, execute, fetch, now, row};
use async_trait::async_trait;
use postroom_core::{Dispatched, Dispatches, MessageId, StoreResult, Token};
use sqlx::mysql::MySqlRow;
use sqlx::{Error, MySql, QueryBuilder, Row as _};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const DISPATCHED: &str = include_str!("sql/dispatched.sql");
const REOPEN: &str = include_str!("sql/reopen.sql");
const REOPEN_DELIVERY: &str = include_str!("sql/reopen_delivery.sql");
const REOPEN_MESSAGE: &str = include_str!("sql/reopen_message.sql");

#[async_trait]
impl Dispatches for MySqlStore {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        let read = async || {
            // A message that was opened again by hand has a number of its own once that is followed.
            self.follow_any_edits().await?;
            let sql = filled(DISPATCHED, &[("columns", columns::MESSAGE)]);
            let sql = self.worded(&sql);
            let ids: Vec<Uuid> = ids.iter().filter_map(|id| self.id_of(id)).collect();
            let mut dispatched = Vec::with_capacity(ids.len());
            for part in ids.chunks(LIST) {
                let mut query: QueryBuilder<MySql> = QueryBuilder::new(format!("{sql} "));
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
        let reopen = async || {
            let locking = self.locking().await?;
            let mut tx = self.begin().await?;
            let mut locked = Vec::new();
            let at = format!("'{}'", now(&mut tx).await?);
            let token = literal::token(claim);
            for part in seqs.chunks(locking.keys()) {
                let seqs = literal::numbers(part.iter().copied());
                let held = filled(REOPEN, &[("seqs", &seqs), ("token", &token)]);
                let wanted = keys(&fetch(&mut tx, held.clone()).await?)?;
                let held = format!("{held} {}", locking.clause());
                let held = keys(&fetch(&mut tx, held).await?)?;
                let free = lock_messages(&mut tx, &held, locking).await?.recorded;
                let passed_over = wanted.iter().filter(|key| !free.contains_key(&key.id));
                locked.extend(passed_over.map(|key| key.seq));
                if free.is_empty() {
                    continue;
                }
                let ids = literal::ids(free.keys());
                execute(&mut tx, filled(REOPEN_DELIVERY, &[("ids", &ids)])).await?;
                let (seqs, token) = (
                    literal::numbers(free.values().map(|recorded| recorded.key.seq)),
                    literal::token(Token::random()),
                );
                let places = [("at", at.as_str()), ("token", &token), ("seqs", &seqs)];
                execute(&mut tx, filled(REOPEN_MESSAGE, &places)).await?;
            }
            tx.commit().await?;
            Ok(locked)
        };
        reopen().await.map_err(|e| store_error("setting failed messages back to PENDING", e))
    }
}

fn keys(rows: &[MySqlRow]) -> Result<Vec<Key>, Error> {
    let key = |row: &MySqlRow| {
        Ok(Key { seq: row.try_get(1)?, id: row.try_get::<Hyphenated, _>(0)?.into() })
    };
    rows.iter().map(key).collect()
}
