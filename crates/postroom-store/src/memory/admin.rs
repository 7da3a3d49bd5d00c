//! Looking at messages.

use super::MemoryStore;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{Admin, Attempt, Filter, MessageId, Record, StatusCounts, StoreResult, Token};
use std::collections::{BTreeMap, BTreeSet};

#[async_trait]
impl Admin for MemoryStore {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        let tables = self.lock();
        Ok(tables.row(id).map(|row| tables.record(row)))
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        let tables = self.lock();
        let attempts = tables.seq_of(id).and_then(|seq| tables.attempts.get(&seq));
        Ok(attempts.cloned().unwrap_or_default())
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        let tables = self.lock();
        let view = tables.view();
        let newest_first = tables.messages.values().rev().map(|row| view.record(row));
        Ok(newest_first.filter(|record| filter.matches(record)).take(filter.limit).collect())
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        let tables = self.lock();
        let view = tables.view();
        let mut counts = BTreeMap::new();
        for row in tables.messages.values() {
            *counts.entry(view.record(row).status).or_insert(0) += 1;
        }
        Ok(StatusCounts { counts: counts.into_iter().collect() })
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        let tables = self.lock();
        let waiting = tables.deliveries.iter().filter(|(_, delivery)| !delivery.dead);
        let waiting = waiting.map(|(_, delivery)| &delivery.integration);
        let names: BTreeSet<_> = waiting.chain(tables.parcels.lanes()).cloned().collect();
        Ok(names.into_iter().collect())
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        let tables = self.lock();
        let held = tables.row(id).and_then(|row| {
            let token = tables.holder(row)?;
            let claim = tables.claims.get(&token)?;
            (claim.worker == worker).then_some((token, row.message.seq))
        });
        Ok(held)
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        Ok(self.clock.now())
    }
}
