//! The consumers of a group, and which one gets a message.

use super::message::{ConsumerId, Message, mix};
use super::settings::Strategy;
use super::statistics::{Latency, Rate};
use super::subscriber::{Delivery, Ended, Identity};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// A consumer as its group sees it.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) id: ConsumerId,
    pub(super) identity: Identity,
    /// How many messages it may have at once.
    pub(super) slots: usize,
    /// How many it has.
    pub(super) in_flight: usize,
    pub(super) deliveries: mpsc::Sender<Delivery>,
    /// Why its subscription ended, told once `deliveries` is dropped.
    pub(super) ended: Arc<OnceLock<Ended>>,
    /// Set once nobody is there to acknowledge anything.
    pub(super) is_gone: Arc<AtomicBool>,
    /// Whether it can no longer acknowledge, though its stream is still open.
    pub(super) is_retired: bool,
    pub(super) rate: Rate,
    pub(super) latency: Latency,
}

impl Consumer {
    fn has_room(&self) -> bool {
        !self.is_retired
            && self.in_flight < self.slots
            && self.deliveries.capacity() > 0
            && !self.deliveries.is_closed()
    }

    /// Ends its subscription. What it has been sent already still reaches it.
    pub(super) fn end(self, why: Ended) {
        // Only the group ends it, and only here: the cell is empty.
        let _ = self.ended.set(why);
    }
}

/// The consumers of a group.
#[derive(Debug)]
pub(super) struct Consumers {
    strategy: Strategy,
    list: Vec<Consumer>,
    /// Whose turn it is.
    turn: usize,
    /// Who has messages of a bucket at the moment, and how many.
    owners: HashMap<u16, (ConsumerId, usize)>,
    next_id: ConsumerId,
}

impl Consumers {
    /// None yet.
    pub(super) fn new(strategy: Strategy) -> Self {
        Self { strategy, list: Vec::new(), turn: 0, owners: HashMap::new(), next_id: 0 }
    }

    /// All of them, retired ones included.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Those that can acknowledge.
    pub(super) fn active(&self) -> usize {
        self.list.iter().filter(|consumer| !consumer.is_retired).count()
    }

    /// An id for another one.
    pub(super) fn next_id(&mut self) -> ConsumerId {
        self.next_id += 1;
        self.next_id
    }

    /// Another one joins.
    pub(super) fn add(&mut self, consumer: Consumer) {
        self.list.push(consumer);
    }

    /// Each of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.list.iter_mut()
    }

    /// The one with this id.
    pub(super) fn get_mut(&mut self, id: ConsumerId) -> Option<&mut Consumer> {
        self.list.iter_mut().find(|consumer| consumer.id == id)
    }

    /// Takes one out. What it has in flight is the group's to give to others.
    pub(super) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let at = self.list.iter().position(|consumer| consumer.id == id)?;
        if self.turn > at {
            self.turn -= 1;
        }
        Some(self.list.remove(at))
    }

    /// Takes all of them out.
    pub(super) fn remove_all(&mut self) -> Vec<Consumer> {
        self.turn = 0;
        std::mem::take(&mut self.list)
    }

    /// Those that have gone.
    pub(super) fn gone(&self) -> Vec<ConsumerId> {
        let is_gone = |consumer: &&Consumer| {
            consumer.is_gone.load(Ordering::Acquire)
                || consumer.is_retired && consumer.deliveries.is_closed()
        };
        self.list.iter().filter(is_gone).map(|consumer| consumer.id).collect()
    }

    /// Whether any of them could take a message.
    pub(super) fn have_room(&self) -> bool {
        self.list.iter().any(Consumer::has_room)
    }

    /// Sends a message to the consumer that shall have it, and says who that is. Gives the message
    /// back where that consumer has no room.
    pub(super) fn send(&mut self, message: &Message) -> Option<ConsumerId> {
        let at = match self.strategy {
            Strategy::DispatchToSingle => self.list.iter().position(Consumer::has_room),
            Strategy::RoundRobin => self.in_turn(),
            Strategy::Pinned | Strategy::PinnedByCorrelation => self.pinned(message.bucket),
        }?;
        let consumer = &mut self.list[at];
        let delivery = Delivery { event: message.event.clone(), retries: message.retries };
        if consumer.deliveries.try_send(delivery).is_err() {
            // It is going at this moment; `has_room` passes over it from now on.
            return None;
        }
        consumer.in_flight += 1;
        consumer.rate.count();
        let id = consumer.id;
        if let Some(bucket) = message.bucket {
            self.owners.entry(bucket).or_insert((id, 0)).1 += 1;
        }
        Some(id)
    }

    /// A consumer no longer has a message.
    pub(super) fn settled(&mut self, id: ConsumerId, bucket: Option<u16>) {
        if let Some(consumer) = self.get_mut(id) {
            consumer.in_flight = consumer.in_flight.saturating_sub(1);
        }
        let Some(bucket) = bucket else { return };
        if let Some((owner, count)) = self.owners.get_mut(&bucket)
            && *owner == id
        {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(&bucket);
            }
        }
    }

    fn in_turn(&mut self) -> Option<usize> {
        let count = self.list.len();
        let at = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|at| self.list[*at].has_room())?;
        self.turn = (at + 1) % count;
        Some(at)
    }

    /// A bucket stays where it has messages in flight, so that a stream keeps its order when
    /// consumers come. Otherwise each consumer's weight for the bucket decides: when one comes or
    /// goes, only the buckets move that it gets or had.
    fn pinned(&self, bucket: Option<u16>) -> Option<usize> {
        let bucket = bucket?;
        let active = || self.list.iter().enumerate().filter(|(_, consumer)| !consumer.is_retired);
        let owner = self.owners.get(&bucket).map(|(owner, _)| *owner);
        let owner = active().find(|(_, consumer)| Some(consumer.id) == owner);
        let weight = |id: ConsumerId| mix(mix(id) ^ u64::from(bucket));
        let (at, consumer) =
            owner.or_else(|| active().max_by_key(|(_, consumer)| weight(consumer.id)))?;
        consumer.has_room().then_some(at)
    }
}
