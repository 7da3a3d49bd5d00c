//! Taking and extending.

use super::MemoryStore;
use super::settle;
use super::tables::{Claim, Delivery, Row, Tables, is_open};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Batch, Claims, ContentFault, RawJson, Settled, Settlement, StoreResult, Take, Taken, Token,
    Wake,
};
use std::time::Duration;

#[async_trait]
impl Claims for MemoryStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Option<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.drop_closed(now);
        let mut due = Vec::new();
        for quota in take.quotas {
            due.extend(tables.due(&quota.integration, now, false).into_iter().take(quota.rows));
        }
        due.sort_unstable();
        due.dedup();
        due.truncate(take.rows);

        let mut messages = Vec::new();
        let mut bytes = 0;
        for (_, seq) in due {
            let Some(row) = tables.messages.get(&seq) else { continue };
            let Some(delivery) = tables.deliveries.get(&seq) else { continue };
            let taken = read(row, delivery, take.payload_limit);
            bytes += taken.message.weight();
            if bytes > take.bytes && !messages.is_empty() {
                break;
            }
            messages.push(taken);
        }
        if messages.is_empty() {
            return Ok(None);
        }
        Ok(Some(tables.hold(messages, take, now, false)))
    }

    async fn take_rescued(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.drop_closed(now);
        let mut batches = Vec::new();
        for quota in take.quotas.iter().filter(|quota| quota.rows > 0).take(take.rows) {
            let first = tables.due(&quota.integration, now, true).into_iter().next();
            let Some((_, seq)) = first else { continue };
            let Some(row) = tables.messages.get(&seq) else { continue };
            let taken = read(row, &tables.deliveries[&seq], take.payload_limit);
            batches.push(tables.hold(vec![taken], take, now, true));
        }
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements)
    }

    async fn extend(&self, tokens: &[Token], claim_time: Duration) -> StoreResult<Vec<Token>> {
        let until = after(self.clock.now(), claim_time);
        let mut tables = self.lock();
        let mut lost = Vec::new();
        for token in tokens {
            match tables.claims.get_mut(token) {
                Some(claim) => claim.until = until,
                None => lost.push(*token),
            }
        }
        Ok(lost)
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        Some(self.written.wake())
    }
}

impl Tables {
    /// What is due in one lane, by due time.
    fn due(
        &self,
        integration: &str,
        now: DateTime<Utc>,
        rescued: bool,
    ) -> Vec<(DateTime<Utc>, i64)> {
        let mut due: Vec<_> = self
            .deliveries
            .iter()
            .filter(|(_, delivery)| {
                delivery.integration == integration
                    && delivery.is_due(now)
                    && (delivery.rescues > 0) == rescued
            })
            .map(|(seq, delivery)| (delivery.due_at, *seq))
            .collect();
        due.sort_unstable();
        due
    }

    /// Forgets due deliveries whose message was deleted, or settled by hand while it was claimed.
    fn drop_closed(&mut self, now: DateTime<Utc>) {
        let messages = &self.messages;
        self.deliveries.retain(|seq, delivery| {
            if !delivery.is_due(now) {
                return true;
            }
            match messages.get(seq) {
                Some(row) if row.status == "DEAD" => {
                    delivery.follow(row);
                    true
                }
                Some(row) => is_open(&row.status),
                None => false,
            }
        });
    }

    fn hold(
        &mut self,
        messages: Vec<Taken>,
        take: &Take<'_>,
        now: DateTime<Utc>,
        alone: bool,
    ) -> Batch {
        let token = self.fresh_token();
        for taken in &messages {
            if let Some(delivery) = self.deliveries.get_mut(&taken.message.seq) {
                delivery.claim = Some(token);
            }
        }
        let claim = Claim {
            worker: take.worker.to_owned(),
            since: now,
            until: after(now, take.claim_time),
            // What is handed over to a queue is no suspect.
            alone: alone && !take.dispatch,
            dispatched: take.dispatch,
        };
        self.claims.insert(token, claim);
        Batch { token, messages }
    }
}

fn read(row: &Row, delivery: &Delivery, payload_limit: usize) -> Taken {
    let mut message = row.message.clone();
    let mut fault = None;
    if message.headers.as_ref().is_some_and(|headers| !headers.is_object()) {
        fault = Some(ContentFault::HeadersNoObject);
    }
    if message.payload.len() > payload_limit {
        message.payload = RawJson::trusted("null");
        fault = Some(ContentFault::TooLarge { limit: payload_limit });
    }
    let (rescues, dispatch) = (delivery.rescues, delivery.dispatch.saturating_add(1));
    Taken { message, rescues, dispatch, fault }
}

/// A moment later; the end of time when that is beyond it.
pub(super) fn after(now: DateTime<Utc>, wait: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(wait)
        .ok()
        .and_then(|wait| now.checked_add_signed(wait))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}
