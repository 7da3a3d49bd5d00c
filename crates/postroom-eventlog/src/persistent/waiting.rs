//! Messages that wait to be delivered.

use super::message::{ConsumerId, Message};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Messages that wait to be delivered, in an order that each bucket of messages keeps for itself:
/// one that has to wait does not hold up others, and nobody looks at all of its messages each time.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The messages of each bucket. Keys count up as messages come.
    messages: BTreeMap<(Option<u16>, u64), Message>,
    /// The first message of each bucket, by its key.
    firsts: BTreeMap<u64, Option<u16>>,
    /// The messages that a consumer had before.
    ids: BTreeSet<(ConsumerId, Uuid, u64, Option<u16>)>,
    next_key: u64,
}

impl Waiting {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Another message waits, behind all others.
    pub(super) fn push(&mut self, message: Message) {
        let (key, bucket) = (self.next_key, message.bucket);
        self.next_key += 1;
        if self.first_of(bucket).is_none() {
            self.firsts.insert(key, bucket);
        }
        self.ids.extend(id_entry(&message, key));
        self.messages.insert((bucket, key), message);
    }

    /// The first message with this key or a later one that is the first of its bucket.
    pub(super) fn first_from(&self, key: u64) -> Option<(u64, &Message)> {
        let (key, bucket) = self.firsts.range(key..).next()?;
        Some((*key, self.messages.get(&(*bucket, *key))?))
    }

    /// Takes the message with this key, which is the first of its bucket.
    pub(super) fn take_first(&mut self, key: u64) -> Option<Message> {
        let bucket = *self.firsts.get(&key)?;
        self.remove(bucket, key)
    }

    /// Takes the oldest message with this id that this consumer had last.
    pub(super) fn take_of(&mut self, consumer: ConsumerId, id: Uuid) -> Option<Message> {
        let (_, _, key, bucket) = *self
            .ids
            .range((consumer, id, 0, None)..)
            .next()
            .filter(|(of, other, ..)| *of == consumer && *other == id)?;
        self.remove(bucket, key)
    }

    /// Takes everything, in the order in which it came.
    pub(super) fn take_all(&mut self) -> Vec<Message> {
        self.firsts.clear();
        self.ids.clear();
        let mut messages: Vec<_> = std::mem::take(&mut self.messages).into_iter().collect();
        messages.sort_unstable_by_key(|((_, key), _)| *key);
        messages.into_iter().map(|(_, message)| message).collect()
    }

    fn first_of(&self, bucket: Option<u16>) -> Option<u64> {
        let (&(_, key), _) = self.messages.range((bucket, 0)..=(bucket, u64::MAX)).next()?;
        Some(key)
    }

    fn remove(&mut self, bucket: Option<u16>, key: u64) -> Option<Message> {
        let message = self.messages.remove(&(bucket, key))?;
        if let Some(entry) = id_entry(&message, key) {
            self.ids.remove(&entry);
        }
        if self.firsts.remove(&key).is_some()
            && let Some(next) = self.first_of(bucket)
        {
            self.firsts.insert(next, bucket);
        }
        Some(message)
    }
}

fn id_entry(message: &Message, key: u64) -> Option<(ConsumerId, Uuid, u64, Option<u16>)> {
    Some((message.last_consumer?, message.id()?, key, message.bucket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ResolvedEvent;
    use crate::log::record::{NO_NUMBER, Parts};
    use crate::persistent::message::Origin;
    use crate::persistent::settings::Strategy;

    fn message(place: u64, bucket: Option<u16>, had: Option<(ConsumerId, u128)>) -> Message {
        let parts = Parts {
            is_json: true,
            is_first: true,
            is_last: true,
            position: place,
            durable: 0,
            revision: place,
            category_number: NO_NUMBER,
            type_number: NO_NUMBER,
            created: 0,
            id: Uuid::from_u128(had.map_or(0, |(_, id)| id)),
            stream: "s",
            event_type: "t",
            metadata: b"",
            data: b"",
        };
        let event = ResolvedEvent::plain(parts.event());
        let last_consumer = had.map(|(consumer, _)| consumer);
        let message = Message::new(event, Origin::Source(place), Strategy::RoundRobin);
        Message { bucket, last_consumer, ..message }
    }

    fn place(message: &Message) -> u64 {
        let Origin::Source(place) = message.origin else { panic!("it is not parked") };
        place
    }

    #[test]
    fn a_bucket_that_waits_is_looked_at_once_and_holds_up_no_other() {
        let mut waiting = Waiting::default();
        for number in 0..50_000 {
            let bucket = if number % 10 == 9 { 2 } else { 1 };
            waiting.push(message(number, Some(bucket), None));
        }
        let (mut next, mut looks, mut taken) = (0, 0, Vec::new());
        while let Some((key, message)) = waiting.first_from(next) {
            next = key + 1;
            looks += 1;
            if message.bucket == Some(2) {
                taken.push(place(&waiting.take_first(key).unwrap()));
            }
        }
        assert!(taken.iter().copied().eq((9..50_000).step_by(10)));
        assert_eq!(looks, taken.len() + 1);
        assert_eq!(waiting.len(), 45_000);
        assert!(waiting.take_all().iter().map(place).is_sorted());
        assert!(waiting.is_empty() && waiting.first_from(0).is_none());
    }

    #[test]
    fn a_message_is_found_by_its_id_and_by_who_had_it() {
        let mut waiting = Waiting::default();
        waiting.push(message(0, None, Some((1, 7))));
        waiting.push(message(1, None, Some((2, 7))));
        waiting.push(message(2, Some(5), Some((2, 7))));
        waiting.push(message(3, None, Some((2, 8))));
        assert!(waiting.take_of(1, Uuid::from_u128(8)).is_none());
        assert!(waiting.take_of(3, Uuid::from_u128(7)).is_none());
        assert_eq!(place(&waiting.take_of(2, Uuid::from_u128(7)).unwrap()), 1);
        assert_eq!(place(&waiting.take_of(2, Uuid::from_u128(7)).unwrap()), 2);
        assert!(waiting.take_of(2, Uuid::from_u128(7)).is_none());
        assert_eq!(place(&waiting.take_of(1, Uuid::from_u128(7)).unwrap()), 0);
        assert_eq!(place(waiting.first_from(0).unwrap().1), 3);
    }
}
