//! Rescuing, pruning, counting and mending.

use super::MemoryStore;
use super::tables::{ATTEMPTS_MAX, Claim, Tables, is_open, unused};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    AttemptOutcome, Backlog, Finding, LaneBacklog, Reconciled, RelayId, Status, StoreResult, Token,
    Tried, Upkeep,
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
            let held: Vec<i64> = tables.deliveries.held_under(token).collect();
            claims += usize::from(!held.is_empty());
            if claims > limit {
                break;
            }
            let Some(claim) = tables.claims.remove(&token) else { continue };
            for seq in &held {
                tables.free_lost(*seq, &claim, now);
            }
            freed += held.len() as u64;
        }
        Ok(freed)
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        let mut old = self.old(Status::Sent, older_than)?;
        old.truncate(limit);
        let mut tables = self.lock();
        for seq in &old {
            tables.remove(*seq);
        }
        let Tables { messages, deliveries, .. } = &mut *tables;
        deliveries.retain(|seq, delivery| !delivery.dead || messages.contains_key(&seq));
        Ok(old.len() as u64)
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        let now = self.clock.now();
        let tables = self.lock();
        let mut lanes: BTreeMap<&str, LaneBacklog> = BTreeMap::new();
        for (_, delivery) in tables.deliveries.iter() {
            let lane = lanes.entry(&delivery.integration).or_insert_with(|| LaneBacklog {
                integration: delivery.integration.clone(),
                pending: 0,
                claimed: 0,
                failed: 0,
                dead: 0,
                lag_ms: 0,
            });
            let count = match delivery {
                delivery if delivery.claim.is_some() => &mut lane.claimed,
                delivery if delivery.dead => &mut lane.dead,
                delivery if delivery.failed => &mut lane.failed,
                _ => &mut lane.pending,
            };
            *count += 1;
            if delivery.is_due(now) {
                let lag = u64::try_from((now - delivery.due_at).num_milliseconds()).unwrap_or(0);
                lane.lag_ms = lane.lag_ms.max(lag);
            }
        }
        Ok(Backlog { lanes: lanes.into_values().collect() })
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        let dispatch = unused(self.clock.now());
        let mut tables = self.lock();
        let freed = tables.free_stray();
        let rows: Vec<_> = tables.messages.values().cloned().collect();
        let made = rows.iter().filter(|row| tables.feed(row, dispatch)).count();
        let followed = tables.follow_unlike();
        let before = tables.deliveries.len();
        let tables = &mut *tables;
        let messages = &tables.messages;
        tables.deliveries.retain(|seq, delivery| {
            delivery.claim.is_some() || messages.get(&seq).is_some_and(|row| is_open(&row.status))
        });
        let removed = before - tables.deliveries.len();
        let (made, removed) = (made as u64, removed as u64);
        Ok(Reconciled { made, removed, freed, followed, ..Reconciled::default() })
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        Ok(self.lock().disagreements())
    }
}

impl Tables {
    /// Frees a delivery whose claim has expired. Lost alone, its message has failed, unless
    /// someone closed it meanwhile.
    fn free_lost(&mut self, seq: i64, claim: &Claim, now: DateTime<Utc>) {
        let error = format!(
            "lost with its relay: the claim of {} expired while it handled this message alone",
            claim.worker
        );
        let fresh = self.fresh_token();
        let mut is_failed = false;
        if let Some(row) = self.messages.get_mut(&seq)
            && claim.alone
            && matches!(row.status.as_str(), "PENDING" | "FAILED")
        {
            is_failed = true;
            row.status = "FAILED".to_owned();
            row.message.attempts = row.message.attempts.saturating_add(1).min(ATTEMPTS_MAX);
            row.last_error = Some(error.clone());
            row.updated_at = now;
            row.settled = Some(fresh);
        }
        if is_failed {
            // Until its relay's end, or until now if that left.
            let end = self.relays.get(&claim.relay).map_or(now, |relay| relay.until);
            let took = (end - claim.since).to_std().unwrap_or_default();
            self.note(seq, Tried { outcome: AttemptOutcome::Lost, took }, &error, now);
        }
        if let Some(mut delivery) = self.deliveries.get_mut(seq) {
            delivery.claim = None;
            delivery.rescues += u32::from(!claim.dispatched);
            if let Some(row) = self.messages.get(&seq) {
                delivery.follow(row);
            }
        }
    }
}
