//! Taking.

use super::MemoryStore;
use super::settle;
use super::tables::{Claim, Delivery, Row, Tables, is_open};
use crate::content_fault::drop_null_headers;
use crate::lost_group::{self, Lost};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Batch, Claims, ContentFault, RawJson, Rescued, Settled, Settlement, StoreResult, Take, Taken,
    Wake, clip_response,
};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

#[async_trait]
impl Claims for MemoryStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let mut due = Vec::new();
        for quota in take.quotas {
            due.extend(tables.due(&quota.integration, now, false, quota.rows));
        }
        // A lane may be asked for twice.
        let mut picked = HashSet::new();
        due.retain(|(_, seq)| picked.insert(*seq));
        // Lane by lane: a backlog of large, older messages takes what the others leave.
        due.truncate(take.rows);

        let mut messages = Vec::new();
        let mut bytes = 0;
        for (at, seq) in due {
            let Some(row) = tables.messages.get(&seq) else { continue };
            let Some(delivery) = tables.deliveries.get(seq) else { continue };
            let taken = read(row, delivery, take);
            bytes += taken.message.weight();
            if bytes > take.bytes && !messages.is_empty() {
                break;
            }
            messages.push((at, taken));
        }
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        tables.check_alive(take.relay, now)?;
        messages.sort_unstable_by_key(|(at, taken)| (*at, taken.message.seq));
        let messages = messages.into_iter().map(|(_, taken)| taken).collect();
        Ok(vec![tables.hold(messages, take, now, false)])
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let mut batches = Vec::new();
        let mut left = take.rows;
        for quota in take.quotas {
            let mut due = Vec::new();
            for (_, seq) in tables.due(&quota.integration, now, true, quota.rows) {
                let Some(delivery) = tables.deliveries.get(seq) else { continue };
                let Some(row) = tables.messages.get(&seq) else { continue };
                due.push(read(row, delivery, take));
            }
            lost_group::keep(&mut due, take, quota, which, &mut left, |taken| Lost {
                rescues: taken.rescues,
                bytes: taken.message.weight(),
            });
            if !due.is_empty() {
                tables.check_alive(take.relay, now)?;
                batches.push(tables.hold(due, take, now, which == Rescued::Alone));
            }
        }
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements)
    }

    async fn keep_responses(&self, responses: &[(Uuid, String)]) -> StoreResult<()> {
        let mut tables = self.lock();
        for (id, response) in responses {
            let Some(seq) = tables.seq_of(*id) else { continue };
            let latest = tables.attempts.get_mut(&seq).and_then(|attempts| attempts.last_mut());
            if let Some(latest) = latest.filter(|latest| latest.response.is_none()) {
                latest.response = Some(clip_response(response));
            }
        }
        Ok(())
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        Some(self.written.wake())
    }
}

impl Tables {
    /// Up to `rows` messages that are due in one lane, by due time. Forgets deliveries that it
    /// meets whose message was deleted, or settled by hand while it was claimed.
    fn due(
        &mut self,
        integration: &str,
        now: DateTime<Utc>,
        rescued: bool,
        rows: usize,
    ) -> Vec<(DateTime<Utc>, i64)> {
        let mut due = Vec::new();
        let mut closed = Vec::new();
        for (at, seq) in self.deliveries.due(integration, now, rescued) {
            if due.len() >= rows {
                break;
            }
            match self.messages.get(&seq).map(|row| row.status.as_str()) {
                Some("PENDING" | "FAILED") => due.push((at, seq)),
                _ => closed.push(seq),
            }
        }
        for seq in closed {
            match self.messages.get(&seq).filter(|row| is_open(&row.status)) {
                // Dead by hand.
                Some(row) => {
                    if let Some(mut delivery) = self.deliveries.get_mut(seq) {
                        delivery.follow(row);
                    }
                }
                None => self.deliveries.remove(seq),
            }
        }
        due
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
            if let Some(mut delivery) = self.deliveries.get_mut(taken.message.seq) {
                delivery.claim = Some(token);
            }
        }
        let claim = Claim {
            worker: take.worker.to_owned(),
            since: now,
            relay: take.relay,
            alone,
            dispatched: take.for_queue,
        };
        self.claims.insert(token, claim);
        Batch { token, messages }
    }
}

fn read(row: &Row, delivery: &Delivery, take: &Take<'_>) -> Taken {
    let mut message = row.message.clone();
    drop_null_headers(&mut message);
    let mut fault = None;
    if message.headers.as_ref().is_some_and(|headers| !headers.is_object()) {
        fault = Some(ContentFault::HeadersNoObject);
    }
    if message.headers.as_ref().is_some_and(|headers| headers.len() > take.headers_limit()) {
        message.headers = None;
        fault = Some(ContentFault::HeadersTooLarge { limit: take.headers_limit() });
    }
    if message.payload.len() > take.payload_limit {
        message.payload = RawJson::trusted("null");
        fault = Some(ContentFault::TooLarge { limit: take.payload_limit });
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
