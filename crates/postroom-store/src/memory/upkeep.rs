//! Rescuing, pruning and counting.

use super::MemoryStore;
use super::tables::{ATTEMPTS_MAX, Claim, Delivery, Tables, is_open};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    AttemptOutcome, Backlog, Finding, LaneBacklog, MessageId, Reconciled, RelayId, Status,
    StoreResult, Token, Tried, Upkeep,
};
use std::collections::BTreeMap;
use std::time::Duration;

#[async_trait]
impl Upkeep for MemoryStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let tables = &mut *tables;
        let expired: Vec<Token> = tables
            .claims
            .iter()
            .filter(|(_, claim)| !tables.is_alive(claim.relay, now))
            .filter(|(_, claim)| claim.relay != relay)
            .map(|(token, _)| *token)
            .collect();
        let (mut freed, mut claims) = (0, 0);
        for token in expired {
            if claims >= limit {
                break;
            }
            let Some(claim) = tables.claims.remove(&token) else { continue };
            let held = tables.free_lost_parcels(&claim) + tables.free_lost(token, &claim, now);
            claims += usize::from(held > 0);
            freed += held;
        }
        Ok(freed)
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let mut old = self.old(Status::Sent, older_than)?;
        old.truncate(limit);
        let mut tables = self.lock();
        for seq in &old {
            tables.prune(*seq, self.history.remember_events);
        }
        let now = self.clock.now();
        tables.remembered.retain(|_, until| *until > now);
        let Tables { seq_by_id, deliveries, .. } = &mut *tables;
        deliveries.retain(|id, delivery| !delivery.dead || seq_by_id.contains_key(id));
        Ok(old.len() as u64)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.follow_edits(None, now);
        let mut counts = LaneCounts { now, lanes: BTreeMap::new() };
        for (_, delivery) in tables.deliveries.iter() {
            let lane = counts.lane(&delivery.integration);
            match delivery {
                delivery if delivery.claim.is_some() => lane.claimed += 1,
                delivery if delivery.dead => lane.dead += 1,
                delivery if delivery.failed => lane.failed += 1,
                _ => lane.pending += 1,
            }
            if delivery.claim.is_none() && !delivery.dead {
                counts.lags(&delivery.integration, delivery.since);
            }
        }
        // What is in parcels that nobody holds is pending; of what somebody holds, that is claimed under
        // which nothing is recorded yet.
        let (claimed, in_flight) = (tables.claimed(), tables.in_flight());
        for (key, parcel) in tables.parcels.iter() {
            let is_claimed = claimed.contains(&key);
            for id in parcel {
                let row = tables.row(id).filter(|_| !tables.deliveries.contains(id));
                match row {
                    Some(_) if in_flight.contains_key(id) => counts.lane(&key.0).claimed += 1,
                    Some(row) if !is_claimed && is_open(&row.status) => {
                        counts.lane(&key.0).pending += 1;
                        counts.lags(&key.0, row.message.due_at);
                    }
                    _ => {}
                }
            }
        }
        Ok(Backlog { lanes: counts.lanes.into_values().collect() })
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.follow_edits(None, now);
        Ok(tables.reconcile(now))
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        Ok(self.lock().disagreements())
    }
}

/// How much waits, by integration.
struct LaneCounts {
    now: DateTime<Utc>,
    lanes: BTreeMap<String, LaneBacklog>,
}

impl LaneCounts {
    fn lane(&mut self, integration: &str) -> &mut LaneBacklog {
        self.lanes.entry(integration.to_owned()).or_insert_with(|| LaneBacklog {
            integration: integration.to_owned(),
            pending: 0,
            claimed: 0,
            failed: 0,
            dead: 0,
            lag_ms: 0,
        })
    }

    fn lags(&mut self, integration: &str, since: DateTime<Utc>) {
        let lag = u64::try_from((self.now - since).num_milliseconds()).unwrap_or(0);
        let lane = self.lane(integration);
        lane.lag_ms = lane.lag_ms.max(lag);
    }
}

impl Tables {
    /// Makes deliveries of what an expired claim holds in parcels, which go; how many it held.
    fn free_lost_parcels(&mut self, claim: &Claim) -> u64 {
        let mut held = 0;
        for key in &claim.parcels {
            for id in self.parcels.remove(key).unwrap_or_default() {
                let Some(row) = self.row(&id) else { continue };
                let is_in_hand = self.is_in_hand(row);
                held += u64::from(is_in_hand);
                // What was opened again by hand after it was recorded under this claim is no rescue.
                let rescues = u32::from(is_in_hand && !claim.dispatched);
                if is_open(&row.status) && !self.deliveries.contains(&id) {
                    let delivery = Delivery { rescues, ..Delivery::of(row) };
                    self.deliveries.insert(id, delivery);
                }
            }
        }
        held
    }

    /// Frees the deliveries that an expired claim holds; how many.
    fn free_lost(&mut self, token: Token, claim: &Claim, now: DateTime<Utc>) -> u64 {
        let held: Vec<MessageId> = self.deliveries.held_under(token).cloned().collect();
        for id in &held {
            self.free_lost_one(id, claim, now);
        }
        held.len() as u64
    }

    /// Frees a delivery whose claim has expired. Lost alone, its message has failed, unless
    /// someone closed it meanwhile.
    fn free_lost_one(&mut self, id: &MessageId, claim: &Claim, now: DateTime<Utc>) {
        let error = format!(
            "lost with its relay: the claim of {} expired while it handled this message alone",
            claim.worker
        );
        let fresh = self.fresh_token();
        let mut failed = None;
        if let Some(row) = self.row_mut(id).filter(|row| claim.alone && row.is_deliverable()) {
            failed = Some(row.message.seq);
            row.status = "FAILED".to_owned();
            row.message.attempts = row.message.attempts.saturating_add(1).min(ATTEMPTS_MAX);
            row.last_error = Some(error.clone());
            row.updated_at = now;
            row.settled = Some(fresh);
        }
        if let Some(seq) = failed {
            // Until its relay's end, or until now if that left.
            let end = self.relays.get(&claim.relay).map_or(now, |relay| relay.until);
            let took = (end - claim.since).to_std().unwrap_or_default();
            self.note(seq, Tried { outcome: AttemptOutcome::Lost, took }, &error, now);
        }
        let row = self.row(id).cloned();
        if let Some(mut delivery) = self.deliveries.get_mut(id) {
            delivery.claim = None;
            delivery.rescues += u32::from(!claim.dispatched);
            if let Some(row) = row {
                delivery.follow(&row);
            }
        }
    }
}
