//! The messages that consumers have and that nobody has acknowledged yet.

use super::message::{ConsumerId, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// A message that a consumer has.
#[derive(Debug)]
pub(super) struct Sent {
    /// The message.
    pub(super) message: Message,
    /// Who has it.
    pub(super) consumer: ConsumerId,
    /// Since when.
    pub(super) at: Instant,
}

/// The messages that consumers have. Their keys count up as messages are sent, so that the first
/// one is also the oldest: the same id may be there several times.
#[derive(Debug, Default)]
pub(super) struct Flight {
    sent: BTreeMap<u64, Sent>,
    ids: BTreeSet<(ConsumerId, Uuid, u64)>,
    next_key: u64,
}

impl Flight {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// A consumer has been sent a message.
    pub(super) fn add(&mut self, message: Message, consumer: ConsumerId) {
        let key = self.next_key;
        self.next_key += 1;
        self.ids.insert((consumer, message.id().unwrap_or_default(), key));
        self.sent.insert(key, Sent { message, consumer, at: Instant::now() });
    }

    /// Takes the oldest message with this id that this consumer has.
    pub(super) fn take(&mut self, consumer: ConsumerId, id: Uuid) -> Option<Sent> {
        let (_, _, key) = *self.ids.range((consumer, id, 0)..=(consumer, id, u64::MAX)).next()?;
        self.remove(key)
    }

    /// Takes everything that a consumer has, the oldest first.
    pub(super) fn take_all_of(&mut self, consumer: ConsumerId) -> Vec<Sent> {
        let of_consumer = (consumer, Uuid::nil(), 0)..=(consumer, Uuid::max(), u64::MAX);
        let mut keys: Vec<u64> = self.ids.range(of_consumer).map(|(_, _, key)| *key).collect();
        keys.sort_unstable();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Takes everything that has been out for this long.
    pub(super) fn take_older_than(&mut self, age: Duration) -> Vec<Sent> {
        let mut taken = Vec::new();
        while let Some((key, sent)) = self.sent.first_key_value() {
            if sent.at.elapsed() < age {
                break;
            }
            let key = *key;
            taken.extend(self.remove(key));
        }
        taken
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> Vec<Sent> {
        self.ids.clear();
        std::mem::take(&mut self.sent).into_values().collect()
    }

    /// Since when the oldest one has been out.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.sent.first_key_value().map(|(_, sent)| sent.at)
    }

    fn remove(&mut self, key: u64) -> Option<Sent> {
        let sent = self.sent.remove(&key)?;
        self.ids.remove(&(sent.consumer, sent.message.id().unwrap_or_default(), key));
        Some(sent)
    }
}
