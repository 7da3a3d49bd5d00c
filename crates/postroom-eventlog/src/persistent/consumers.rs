//! The consumers of a group, and which one gets a message.

use super::message::{ConsumerId, Message, mix};
use super::settings::Strategy;
use super::statistics::{Latency, Rate};
use super::subscriber::{Delivery, Ended, Identity};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
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
    /// Set while the group waits for it to read.
    pub(super) is_behind: Arc<AtomicBool>,
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
            && !self.is_behind()
    }

    /// Whether messages were taken back from it that it has not even read. It gets no others before
    /// it has: they would only fill the memory.
    fn is_behind(&self) -> bool {
        let unread = || self.deliveries.max_capacity() - self.deliveries.capacity();
        let was_behind = self.is_behind.load(Ordering::Relaxed);
        if unread() <= self.in_flight {
            if was_behind {
                self.is_behind.store(false, Ordering::Relaxed);
            }
            return false;
        }
        self.is_behind.store(true, Ordering::Relaxed);
        // It rings for each message that it reads from now on. Perhaps it has just read the last.
        fence(Ordering::SeqCst);
        unread() > self.in_flight
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
    /// In the order of their ids.
    list: Vec<Consumer>,
    /// Whose turn it is.
    turn: usize,
    /// Who has messages of a bucket at the moment, and how many.
    owners: HashMap<u16, (ConsumerId, usize)>,
    /// Who gets the messages of a bucket that has no owner, as far as that is known.
    chosen: HashMap<u16, ConsumerId>,
    next_id: ConsumerId,
}

impl Consumers {
    /// None yet.
    pub(super) fn new(strategy: Strategy) -> Self {
        let (owners, chosen) = (HashMap::new(), HashMap::new());
        Self { strategy, list: Vec::new(), turn: 0, owners, chosen, next_id: 0 }
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
        self.chosen.clear();
        self.list.push(consumer);
    }

    /// Each of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Consumer> {
        self.list.iter_mut()
    }

    /// The one with this id.
    pub(super) fn get_mut(&mut self, id: ConsumerId) -> Option<&mut Consumer> {
        let at = self.position(id)?;
        self.list.get_mut(at)
    }

    fn position(&self, id: ConsumerId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |consumer| consumer.id).ok()
    }

    /// One cannot acknowledge any more, and gets no messages.
    pub(super) fn retire(&mut self, id: ConsumerId) {
        self.chosen.clear();
        if let Some(consumer) = self.get_mut(id) {
            consumer.is_retired = true;
        }
    }

    /// Takes one out. What it has in flight is the group's to give to others.
    pub(super) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let at = self.position(id)?;
        self.chosen.clear();
        if self.turn > at {
            self.turn -= 1;
        }
        Some(self.list.remove(at))
    }

    /// Takes all of them out.
    pub(super) fn remove_all(&mut self) -> Vec<Consumer> {
        self.turn = 0;
        self.chosen.clear();
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
        let consumer = loop {
            let at = match self.strategy {
                Strategy::DispatchToSingle => self.list.iter().position(Consumer::has_room),
                Strategy::RoundRobin => self.in_turn(),
                Strategy::Pinned | Strategy::PinnedByCorrelation => self.pinned(message.bucket),
            }?;
            let consumer = &mut self.list[at];
            let (event, retries) = (message.event.clone(), message.retries);
            let delivery = Delivery { event, retries, _hold: message.hold.clone() };
            // One that is going at this moment has no room any more.
            if consumer.deliveries.try_send(delivery).is_ok() {
                break consumer;
            }
        };
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
    fn pinned(&mut self, bucket: Option<u16>) -> Option<usize> {
        let bucket = bucket?;
        let owner = self.owners.get(&bucket).and_then(|(owner, _)| self.position(*owner));
        let at = match owner.filter(|at| !self.list[*at].is_retired) {
            Some(at) => at,
            None => self.chosen(bucket)?,
        };
        self.list[at].has_room().then_some(at)
    }

    /// The consumer with the highest weight for a bucket.
    fn chosen(&mut self, bucket: u16) -> Option<usize> {
        let id = match self.chosen.get(&bucket) {
            Some(id) => *id,
            None => {
                let active = self.list.iter().filter(|consumer| !consumer.is_retired);
                let ids = active.map(|consumer| consumer.id);
                let id = ids.max_by_key(|id| mix(mix(*id) ^ u64::from(bucket)))?;
                self.chosen.insert(bucket, id);
                id
            }
        };
        self.position(id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Origin;
    use super::super::subscriber::Deliveries;
    use super::*;
    use crate::event::ResolvedEvent;
    use futures_util::FutureExt as _;
    use std::future::poll_fn;
    use tokio::sync::{Notify, oneshot};

    fn consumer(id: ConsumerId, slots: usize) -> (Consumer, Deliveries) {
        let (deliveries, receiver) = mpsc::channel(slots);
        let (ended, is_behind) = (Arc::default(), Arc::<AtomicBool>::default());
        let consumer = Consumer {
            id,
            identity: Identity::default(),
            slots,
            in_flight: 0,
            deliveries,
            ended: Arc::clone(&ended),
            is_gone: Arc::default(),
            is_behind: Arc::clone(&is_behind),
            is_retired: false,
            rate: Rate::default(),
            latency: Latency::default(),
        };
        let attention = Arc::<Notify>::default();
        let _open = oneshot::channel().0;
        (consumer, Deliveries { receiver, ended, attention, is_behind, _open })
    }

    fn message(strategy: Strategy, bucket: Option<u16>) -> Message {
        let event = ResolvedEvent { event: None, link: None };
        Message { bucket, ..Message::new(event, Origin::Source(0), strategy) }
    }

    #[tokio::test]
    async fn consumer_that_does_not_read_gets_no_others_for_what_was_taken_back() {
        let mut consumers = Consumers::new(Strategy::RoundRobin);
        let (consumer, mut deliveries) = consumer(1, 10);
        consumers.add(consumer);
        let message = message(Strategy::RoundRobin, None);
        for _ in 0..2 {
            assert_eq!(consumers.send(&message), Some(1));
        }
        consumers.settled(1, None);
        assert_eq!(consumers.send(&message), None);
        // It reads, and the group hears of it.
        let attention = Arc::clone(&deliveries.attention);
        poll_fn(|cx| deliveries.poll_next(cx)).await.unwrap();
        assert!(attention.notified().now_or_never().is_some());
        assert_eq!(consumers.send(&message), Some(1));
    }

    #[test]
    fn bucket_moves_only_to_a_consumer_that_comes_or_from_one_that_goes() {
        let mut consumers = Consumers::new(Strategy::Pinned);
        let mut receivers = Vec::new();
        let mut add = |consumers: &mut Consumers| {
            let id = consumers.next_id();
            let (consumer, deliveries) = consumer(id, 10_000);
            consumers.add(consumer);
            receivers.push(deliveries);
        };
        let place = |consumers: &mut Consumers| -> Vec<ConsumerId> {
            let mut placed = Vec::new();
            for bucket in 0..1_024 {
                let message = message(Strategy::Pinned, Some(bucket));
                placed.push(consumers.send(&message).unwrap());
            }
            for (bucket, id) in (0..).zip(&placed) {
                // As if all had been read and acknowledged.
                consumers.owners.remove(&bucket);
                consumers.get_mut(*id).unwrap().in_flight = 5_000;
            }
            placed
        };
        for _ in 0..3 {
            add(&mut consumers);
        }
        let before = place(&mut consumers);
        add(&mut consumers);
        let with_fourth = place(&mut consumers);
        assert!(before.iter().zip(&with_fourth).all(|(old, new)| old == new || *new == 4));
        assert!((1..=4).all(|id| with_fourth.contains(&id)));
        consumers.remove(2);
        consumers.retire(4);
        let after = place(&mut consumers);
        let stay = |(old, new): (&ConsumerId, &ConsumerId)| old == new || [2, 4].contains(old);
        assert!(with_fourth.iter().zip(&after).all(stay));
        assert!(!after.contains(&2) && !after.contains(&4));
    }
}
