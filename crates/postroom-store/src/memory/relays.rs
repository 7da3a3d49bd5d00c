//! The relays' rows.

use super::MemoryStore;
use super::claims::after;
use super::tables::{RelayState, Tables};
use crate::own_claims::{NoLivingRelay, OwnClaims, VERSION};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays, StoreError, StoreErrorKind, StoreResult,
    Token,
};

#[async_trait]
impl Relays for MemoryStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let until = after(now, beat.claim_time);
        let row = tables.relays.entry(beat.relay).or_insert_with(|| RelayState {
            name: String::new(),
            lanes: 0,
            started_at: now,
            until,
        });
        beat.name.clone_into(&mut row.name);
        row.lanes = u32::try_from(beat.lanes).unwrap_or(u32::MAX);
        row.until = until;
        let under = tables.claims.iter().filter(|(_, claim)| claim.relay == beat.relay);
        let found: Vec<_> = under
            .map(|(token, claim)| (*token, after(claim.since, beat.claim_time) < now))
            .collect();
        let own = OwnClaims::compare(&found, beat.held);
        for token in &own.unrecognised {
            if let Some(claim) = tables.claims.get_mut(token) {
                (claim.relay, claim.alone, claim.dispatched) = (RelayId::NOBODY, false, true);
            }
        }
        tables.forget_relays(now);
        Ok(own.lost)
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        self.lock().relays.remove(&relay);
        Ok(())
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        let now = self.clock.now();
        let tables = self.lock();
        let mut rows: Vec<RelayRow> = tables
            .relays
            .iter()
            .map(|(id, relay)| RelayRow {
                id: *id,
                name: relay.name.clone(),
                version: VERSION.to_owned(),
                lanes: relay.lanes,
                started_at: relay.started_at,
                until: relay.until,
                claims: tables.claims_of(*id),
            })
            .collect();
        rows.retain(|row| row.claims > 0 || after(row.until, RELAY_KEPT) >= now);
        rows.sort_by(|a, b| (&a.name, a.started_at, a.id).cmp(&(&b.name, b.started_at, b.id)));
        Ok(rows)
    }
}

impl Tables {
    /// Whether claims that name this relay stand.
    pub(super) fn is_alive(&self, relay: RelayId, now: DateTime<Utc>) -> bool {
        self.relays.get(&relay).is_some_and(|row| row.until >= now)
    }

    /// Refuses a take whose claims would be born expired.
    pub(super) fn check_alive(&self, relay: RelayId, now: DateTime<Utc>) -> StoreResult<()> {
        if self.is_alive(relay, now) {
            return Ok(());
        }
        Err(StoreError::plain(StoreErrorKind::Conflict, NoLivingRelay.to_string()))
    }

    fn claims_of(&self, relay: RelayId) -> u64 {
        self.claims.values().filter(|claim| claim.relay == relay).count() as u64
    }

    fn forget_relays(&mut self, now: DateTime<Utc>) {
        let is_over = |row: &RelayState| {
            let end = if row.lanes == 0 { row.until } else { after(row.until, RELAY_KEPT) };
            end < now
        };
        let over: Vec<RelayId> =
            self.relays.iter().filter(|(_, row)| is_over(row)).map(|(id, _)| *id).collect();
        for id in over {
            if self.claims_of(id) == 0 {
                self.relays.remove(&id);
            }
        }
    }
}
