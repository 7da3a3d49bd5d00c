//! Messages on their way to consumers and back.

use super::reading::READ_MAX;
use super::{Group, NackAction};
use crate::expected::ReadError;
use crate::persistent::flight::Sent;
use crate::persistent::message::{ConsumerId, Message, Origin};
use crate::persistent::parked::ToPark;
use crate::persistent::subscriber::Ended;
use std::time::Duration;
use uuid::Uuid;

/// Where messages wait, in the order in which they are delivered.
#[derive(Clone, Copy)]
enum Queue {
    Retries,
    Replays,
    Buffer,
}

impl Group {
    /// Hands out what there is room for. What is looked at is sent, or the first of a bucket whose
    /// consumer has no room: those behind it are not looked at, and no others are held up.
    pub(super) fn dispatch(&mut self) {
        if !self.consumers.have_room() {
            return;
        }
        for from in [Queue::Retries, Queue::Replays, Queue::Buffer] {
            let mut next = 0;
            while let Some((key, is_sent)) = self.send_first(from, next) {
                next = key + 1;
                if is_sent && !self.consumers.have_room() {
                    return;
                }
            }
        }
    }

    /// Sends the first message with this key or a later one that is the first of its bucket, if its
    /// consumer has room. Gives its key, and whether it was sent.
    fn send_first(&mut self, from: Queue, key: u64) -> Option<(u64, bool)> {
        let queue = match from {
            Queue::Retries => &mut self.retries,
            Queue::Replays => &mut self.replays,
            Queue::Buffer => &mut self.buffer,
        };
        let (key, message) = queue.first_from(key)?;
        let Some(consumer) = self.consumers.send(message) else { return Some((key, false)) };
        if let Some(mut message) = queue.take_first(key) {
            message.last_consumer = Some(consumer);
            self.flight.add(message, consumer);
            self.rate.count();
        }
        Some((key, true))
    }

    /// Reads parked messages for a replay, once those that were read before are delivered.
    pub(super) async fn read_parked(&mut self) -> Result<(), ReadError> {
        if !self.has_room() || !self.replays.is_empty() || self.consumers.active() == 0 {
            return Ok(());
        }
        while self.parked.is_replaying() && self.replays.is_empty() {
            let batch = self.settings.read_batch_size.min(READ_MAX as u32);
            for (revision, event) in self.parked.read(&self.log, batch).await? {
                let strategy = self.settings.strategy;
                let mut message = Message::new(event, Origin::Parked(revision), strategy);
                self.hold(&mut message);
                self.replays.push(message);
            }
        }
        Ok(())
    }

    /// A consumer has worked on these. Ids that it does not have change nothing.
    pub(super) fn acknowledge(&mut self, consumer: ConsumerId, ids: &[Uuid]) {
        for id in ids {
            if let Some(message) = self.take(consumer, *id, true) {
                self.finish(&message);
            }
        }
    }

    /// A consumer could not work on these.
    pub(super) fn refuse(
        &mut self,
        consumer: ConsumerId,
        ids: &[Uuid],
        action: NackAction,
        reason: &str,
    ) {
        for id in ids {
            let Some(message) = self.take(consumer, *id, false) else { continue };
            match action {
                NackAction::Retry | NackAction::Stop => self.retry(message),
                NackAction::Skip => self.finish(&message),
                NackAction::Park => {
                    self.parking.push(ToPark { message, reason: reason.to_owned() });
                }
            }
        }
        if action == NackAction::Stop {
            self.dismiss(consumer, Ended::Dropped);
        }
    }

    /// Sends a consumer away; its messages go to others.
    pub(super) fn dismiss(&mut self, consumer: ConsumerId, why: Ended) {
        let removed = self.consumers.remove(consumer);
        self.take_back_from(consumer);
        if let Some(removed) = removed {
            removed.end(why);
        }
    }

    /// Consumers that have gone leave their messages to others.
    pub(super) fn remove_gone(&mut self) {
        for consumer in self.consumers.gone() {
            self.take_back_from(consumer);
            self.consumers.remove(consumer);
        }
    }

    pub(super) fn take_back_from(&mut self, consumer: ConsumerId) {
        let sent = self.flight.take_all_of(consumer);
        self.take_back(sent);
    }

    /// Messages that were not acknowledged in time are delivered again.
    pub(super) fn take_back_overdue(&mut self) {
        if self.settings.message_timeout_ms > 0 {
            let sent = self.flight.take_older_than(self.message_timeout());
            self.take_back(sent);
        }
    }

    pub(super) fn message_timeout(&self) -> Duration {
        Duration::from_millis(u64::from(self.settings.message_timeout_ms))
    }

    /// Counts a message as held.
    pub(super) fn hold(&mut self, message: &mut Message) {
        let size = message.size();
        self.held += 1;
        self.held_bytes += size;
        message.hold = Some(self.holdings.hold(size));
    }

    /// A message is acknowledged, parked or skipped.
    pub(super) fn finish(&mut self, message: &Message) {
        self.held = self.held.saturating_sub(1);
        self.held_bytes = self.held_bytes.saturating_sub(message.size());
        match message.origin {
            Origin::Source(place) => {
                self.progress.finish(place);
                self.saving.finished();
            }
            Origin::Parked(revision) => self.parked.finish(revision),
        }
    }

    /// What a consumer speaks of: a message that it has, or one that it had too long and that waits
    /// to be delivered again.
    fn take(&mut self, consumer: ConsumerId, id: Uuid, is_done: bool) -> Option<Message> {
        if let Some(Sent { message, at, .. }) = self.flight.take(consumer, id) {
            self.consumers.settled(consumer, message.bucket);
            if is_done
                && self.settings.extra_statistics
                && let Some(consumer) = self.consumers.get_mut(consumer)
            {
                consumer.latency.record(at.elapsed());
            }
            return Some(message);
        }
        self.retries.take_of(consumer, id)
    }

    fn take_back(&mut self, sent: Vec<Sent>) {
        for Sent { message, consumer, .. } in sent {
            self.consumers.settled(consumer, message.bucket);
            self.retry(message);
        }
    }

    /// A message is delivered again, or parked where that happened often enough.
    fn retry(&mut self, mut message: Message) {
        if message.retries < self.settings.max_retry_count {
            message.retries += 1;
            self.retries.push(message);
        } else {
            let reason = format!("delivered again {} times", message.retries);
            self.parking.push(ToPark { message, reason });
        }
    }
}
