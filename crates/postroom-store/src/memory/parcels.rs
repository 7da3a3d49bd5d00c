//! Parcels of fresh messages, and what is done to them besides taking: finding who holds one, and
//! making deliveries of what it names.
//!
//! A parcel is inserted once and deleted once. A claim names its parcels and writes to none of them,
//! so who holds a parcel is read from the claims. Whatever is not delivered out of a parcel gets a
//! delivery, and no parcel ever goes back to its lane.

use super::tables::{Delivery, Row, Tables, is_open};
use postroom_core::{MessageId, Quota, Token};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

/// No parcel has a number that is lower, or higher.
pub(super) const BEFORE_ALL: i64 = i64::MIN;
pub(super) const AFTER_ALL: i64 = i64::MAX;

/// Where a parcel stands: its lane, and its number there. Numbers are the ledger's own: they are drawn
/// with the insert and say nothing about when it commits.
pub(super) type ParcelKey = (String, i64);

/// The ids of its messages, in the order of their insertion.
pub(super) type Parcel = Vec<MessageId>;

#[derive(Default)]
pub(super) struct Parcels {
    lanes: BTreeMap<String, BTreeMap<i64, Parcel>>,
    /// Which parcels name a message: one, unless the ledger was restored beside what made it again.
    naming: HashMap<MessageId, Vec<ParcelKey>>,
}

impl Parcels {
    pub(super) fn get(&self, (lane, number): &ParcelKey) -> Option<&Parcel> {
        self.lanes.get(lane)?.get(number)
    }

    pub(super) fn insert(&mut self, key: ParcelKey, parcel: Parcel) {
        for id in &parcel {
            self.naming.entry(id.clone()).or_default().push(key.clone());
        }
        let (lane, number) = key;
        self.lanes.entry(lane).or_default().insert(number, parcel);
    }

    pub(super) fn remove(&mut self, key: &ParcelKey) -> Option<Parcel> {
        let (lane, number) = key;
        let parcels = self.lanes.get_mut(lane)?;
        let parcel = parcels.remove(number)?;
        if parcels.is_empty() {
            self.lanes.remove(lane);
        }
        for id in &parcel {
            if let Some(keys) = self.naming.get_mut(id) {
                keys.retain(|other| other != key);
                if keys.is_empty() {
                    self.naming.remove(id);
                }
            }
        }
        Some(parcel)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// In the order of lanes and numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ParcelKey, &Parcel)> {
        self.lanes.iter().flat_map(|(lane, parcels)| {
            parcels.iter().map(move |(number, parcel)| ((lane.clone(), *number), parcel))
        })
    }

    /// The first parcel of a lane after a number and no later than another.
    pub(super) fn next(&self, lane: &str, after: i64, up_to: i64) -> Option<i64> {
        let parcels = self.lanes.get(lane).filter(|_| after < up_to)?;
        let mut numbers = parcels.range((Bound::Excluded(after), Bound::Included(up_to)));
        numbers.next().map(|(number, _)| *number)
    }

    /// The lanes that have parcels.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &String> {
        self.lanes.keys()
    }

    /// The parcels that name a message.
    pub(super) fn naming(&self, id: &MessageId) -> &[ParcelKey] {
        self.naming.get(id).map_or(&[], Vec::as_slice)
    }

    /// Every message that some parcel names.
    pub(super) fn named(&self) -> impl Iterator<Item = &MessageId> {
        self.naming.keys()
    }
}

impl Tables {
    /// The parcels that claims name: never many.
    pub(super) fn claimed(&self) -> HashSet<&ParcelKey> {
        self.claims.values().flat_map(|claim| &claim.parcels).collect()
    }

    /// The messages of parcels that relays hold, and under which claim. Of a parcel that was settled in
    /// part only what is left.
    pub(super) fn in_flight(&self) -> HashMap<MessageId, Token> {
        let mut in_flight = HashMap::new();
        for (token, claim) in &self.claims {
            for id in claim.parcels.iter().filter_map(|key| self.parcels.get(key)).flatten() {
                if self.row(id).is_some_and(|row| self.is_in_hand(row)) {
                    in_flight.insert(id.clone(), *token);
                }
            }
        }
        in_flight
    }

    /// Under which claim a relay holds a message that stands in a parcel.
    pub(super) fn holder_in_parcel(&self, row: &Row) -> Option<Token> {
        let keys = self.parcels.naming(&row.message.id);
        if keys.is_empty() {
            return None;
        }
        let holders = self
            .claims
            .iter()
            .filter(|(_, claim)| keys.iter().any(|key| claim.parcels.contains(key)));
        holders.map(|(token, _)| *token).find(|_| self.is_in_hand(row))
    }

    /// Whether a claim that names a message's parcel still holds the message. A delivery outranks the
    /// parcel; what was recorded under the claim is over, and so is what was taken out of it and recorded under
    /// another: nothing is put into a parcel after that.
    pub(super) fn is_in_hand(&self, row: &Row) -> bool {
        !self.deliveries.contains(&row.message.id) && row.settled.is_none()
    }

    /// Deletes a parcel and makes deliveries of what is open in it. One that is there outranks it.
    pub(super) fn unpack(&mut self, key: &ParcelKey) {
        for id in self.parcels.remove(key).unwrap_or_default() {
            let Some(row) = self.row(&id).filter(|row| is_open(&row.status)) else { continue };
            if !self.deliveries.contains(&id) {
                let delivery = Delivery::of(row);
                self.deliveries.insert(id, delivery);
            }
        }
    }

    /// Makes deliveries for lanes that are claimed message by message: as many as are asked for, and the
    /// rest of the last parcel.
    pub(super) fn unpack_lanes(&mut self, quotas: &[Quota]) {
        for quota in quotas {
            let claimed = self.claimed_in(&quota.integration);
            let (mut left, mut last) = (quota.rows, BEFORE_ALL);
            while left > 0
                && let Some(number) = self.parcels.next(&quota.integration, last, AFTER_ALL)
            {
                last = number;
                if !claimed.contains(&number) {
                    let key = (quota.integration.clone(), number);
                    left = left.saturating_sub(self.parcels.get(&key).map_or(0, Vec::len));
                    self.unpack(&key);
                }
            }
        }
    }

    /// Makes deliveries of what the parcels name that name this message, as far as nobody holds them.
    pub(super) fn unpack_naming(&mut self, id: &MessageId) {
        let claimed = self.claimed();
        let keys = self.parcels.naming(id).iter().filter(|key| !claimed.contains(key));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.unpack(&key);
        }
    }

    /// The numbers of a lane's parcels that claims name.
    pub(super) fn claimed_in(&self, lane: &str) -> HashSet<i64> {
        let claimed = self.claims.values().flat_map(|claim| &claim.parcels);
        claimed.filter(|(here, _)| here == lane).map(|(_, number)| *number).collect()
    }
}
