//! What is still to be delivered and not fresh, found by what is searched for while working: so that a
//! long backlog costs no more per message than a short one, as an index on a database sees to.

use super::tables::Delivery;
use chrono::{DateTime, Utc};
use postroom_core::{MessageId, Token};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};

/// Deliveries by the id of their message.
#[derive(Default)]
pub(super) struct Deliveries {
    rows: BTreeMap<MessageId, Delivery>,
    indexes: Indexes,
}

/// By due time and number.
type Queue = BTreeSet<(DateTime<Utc>, i64, MessageId)>;

#[derive(Default)]
struct Indexes {
    /// By lane: what nobody holds and is not dead, apart whether it was rescued before.
    fresh: HashMap<String, Queue>,
    rescued: HashMap<String, Queue>,
    /// By number.
    held: HashMap<Token, BTreeSet<(i64, MessageId)>>,
}

impl Indexes {
    fn add(&mut self, id: &MessageId, delivery: &Delivery) {
        if let Some(token) = delivery.claim {
            self.held.entry(token).or_default().insert((delivery.seq, id.clone()));
        } else if !delivery.dead {
            let place = (delivery.due_at, delivery.seq, id.clone());
            let lanes = self.lanes(delivery.rescues);
            match lanes.get_mut(&delivery.integration) {
                Some(queue) => drop(queue.insert(place)),
                None => drop(lanes.insert(delivery.integration.clone(), Queue::from([place]))),
            }
        }
    }

    fn remove(&mut self, id: &MessageId, delivery: &Delivery) {
        if let Some(token) = delivery.claim {
            if let Some(held) = self.held.get_mut(&token) {
                held.remove(&(delivery.seq, id.clone()));
                if held.is_empty() {
                    self.held.remove(&token);
                }
            }
        } else if !delivery.dead
            && let Some(queue) = self.lanes(delivery.rescues).get_mut(&delivery.integration)
        {
            queue.remove(&(delivery.due_at, delivery.seq, id.clone()));
        }
    }

    fn lanes(&mut self, rescues: u32) -> &mut HashMap<String, Queue> {
        if rescues > 0 { &mut self.rescued } else { &mut self.fresh }
    }
}

impl Deliveries {
    pub(super) fn contains(&self, id: &MessageId) -> bool {
        self.rows.contains_key(id)
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<&Delivery> {
        self.rows.get(id)
    }

    /// A delivery to change.
    pub(super) fn get_mut(&mut self, id: &MessageId) -> Option<Changing<'_>> {
        let delivery = self.rows.get_mut(id)?;
        // Out of the indexes while it changes.
        self.indexes.remove(id, delivery);
        Some(Changing { id: id.clone(), delivery, indexes: &mut self.indexes })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&MessageId, &Delivery)> {
        self.rows.iter()
    }

    pub(super) fn insert(&mut self, id: MessageId, delivery: Delivery) {
        self.remove(&id);
        self.indexes.add(&id, &delivery);
        self.rows.insert(id, delivery);
    }

    pub(super) fn remove(&mut self, id: &MessageId) {
        if let Some(delivery) = self.rows.remove(id) {
            self.indexes.remove(id, &delivery);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&MessageId, &Delivery) -> bool) {
        let Self { rows, indexes } = self;
        rows.retain(|id, delivery| {
            let is_kept = keep(id, delivery);
            if !is_kept {
                indexes.remove(id, delivery);
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
    ) -> impl Iterator<Item = (DateTime<Utc>, &MessageId)> {
        let lanes = if rescued { &self.indexes.rescued } else { &self.indexes.fresh };
        let queue = lanes.get(integration).into_iter().flatten();
        queue.map(|(at, _, id)| (*at, id)).take_while(move |(at, _)| *at <= now)
    }

    /// What is held under one claim.
    pub(super) fn held_under(&self, token: Token) -> impl Iterator<Item = &MessageId> {
        self.indexes.held.get(&token).into_iter().flatten().map(|(_, id)| id)
    }
}

/// A delivery that is being changed. It is found again, as it is then, once this is dropped.
pub(super) struct Changing<'a> {
    id: MessageId,
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
        self.indexes.add(&self.id, self.delivery);
    }
}
