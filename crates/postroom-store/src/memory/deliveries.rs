//! What is still to be delivered, found by what is searched for while working: so that a long
//! backlog costs no more per message than a short one, as an index on a database sees to.

use super::tables::Delivery;
use chrono::{DateTime, Utc};
use postroom_core::Token;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

/// Deliveries by `seq`.
#[derive(Default)]
pub(super) struct Deliveries {
    rows: BTreeMap<i64, Delivery>,
    indexes: Indexes,
}

/// By due time and number.
type Queue = BTreeSet<(DateTime<Utc>, i64)>;

#[derive(Default)]
struct Indexes {
    /// By lane: what nobody holds and is not dead, apart whether it was rescued before.
    fresh: HashMap<String, Queue>,
    rescued: HashMap<String, Queue>,
    held: HashMap<Token, BTreeSet<i64>>,
}

impl Indexes {
    fn add(&mut self, seq: i64, delivery: &Delivery) {
        if let Some(token) = delivery.claim {
            self.held.entry(token).or_default().insert(seq);
        } else if !delivery.dead {
            let place = (delivery.due_at, seq);
            let lanes = self.lanes(delivery.rescues);
            match lanes.get_mut(&delivery.integration) {
                Some(queue) => drop(queue.insert(place)),
                None => drop(lanes.insert(delivery.integration.clone(), Queue::from([place]))),
            }
        }
    }

    fn remove(&mut self, seq: i64, delivery: &Delivery) {
        if let Some(token) = delivery.claim {
            if let Some(held) = self.held.get_mut(&token) {
                held.remove(&seq);
                if held.is_empty() {
                    self.held.remove(&token);
                }
            }
        } else if !delivery.dead
            && let Some(queue) = self.lanes(delivery.rescues).get_mut(&delivery.integration)
        {
            queue.remove(&(delivery.due_at, seq));
        }
    }

    fn lanes(&mut self, rescues: u32) -> &mut HashMap<String, Queue> {
        if rescues > 0 { &mut self.rescued } else { &mut self.fresh }
    }
}

impl Deliveries {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn contains(&self, seq: i64) -> bool {
        self.rows.contains_key(&seq)
    }

    pub(super) fn get(&self, seq: i64) -> Option<&Delivery> {
        self.rows.get(&seq)
    }

    /// A delivery to change.
    pub(super) fn get_mut(&mut self, seq: i64) -> Option<Changing<'_>> {
        let delivery = self.rows.get_mut(&seq)?;
        // Out of the indexes while it changes.
        self.indexes.remove(seq, delivery);
        Some(Changing { seq, delivery, indexes: &mut self.indexes })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &Delivery)> {
        self.rows.iter().map(|(seq, delivery)| (*seq, delivery))
    }

    pub(super) fn insert(&mut self, seq: i64, delivery: Delivery) {
        self.remove(seq);
        self.indexes.add(seq, &delivery);
        self.rows.insert(seq, delivery);
    }

    pub(super) fn remove(&mut self, seq: i64) {
        if let Some(delivery) = self.rows.remove(&seq) {
            self.indexes.remove(seq, &delivery);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn retain(&mut self, keep: impl Fn(i64, &Delivery) -> bool) {
        let Self { rows, indexes } = self;
        rows.retain(|seq, delivery| {
            let is_kept = keep(*seq, delivery);
            if !is_kept {
                indexes.remove(*seq, delivery);
            }
            is_kept
        });
    }

    /// What is due in one lane, by due time.
    pub(super) fn due(
        &self,
        integration: &str,
        now: DateTime<Utc>,
        rescued: bool,
    ) -> impl Iterator<Item = (DateTime<Utc>, i64)> {
        let lanes = if rescued { &self.indexes.rescued } else { &self.indexes.fresh };
        lanes.get(integration).into_iter().flatten().copied().take_while(move |(at, _)| *at <= now)
    }

    /// What is held under one claim.
    pub(super) fn held_under(&self, token: Token) -> impl Iterator<Item = i64> {
        self.indexes.held.get(&token).into_iter().flatten().copied()
    }
}

/// A delivery that is being changed. It is found again, as it is then, once this is dropped.
pub(super) struct Changing<'a> {
    seq: i64,
    delivery: &'a mut Delivery,
    indexes: &'a mut Indexes,
}

impl Deref for Changing<'_> {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        self.delivery
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Delivery {
        self.delivery
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.indexes.add(self.seq, self.delivery);
    }
}
