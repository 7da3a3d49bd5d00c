//! What a group reads from the log, as long as it has consumers and room.

use super::{Group, HELD_BYTES_ALWAYS, HELD_BYTES_MAX, HELD_MAX};
use crate::persistent::message::{Message, Origin};
use crate::persistent::source::FILTER_INTERVAL;
use crate::subscription::{Notice, Subscription, SubscriptionError};
use futures_util::future::BoxFuture;
use std::future::pending;

/// How many events are read at once, whatever the settings allow.
pub(super) const READ_MAX: usize = 1_000;

type Batch = Result<Vec<Notice>, SubscriptionError>;

/// Whether and what a group reads at the moment.
pub(super) enum Reading {
    /// Nothing: it does not follow the log.
    Idle,
    /// Nothing: it has no room.
    Resting(Subscription),
    /// A batch. The read goes on when the group has something else to do meanwhile: if it began
    /// again after each acknowledgement, it might never end.
    Busy(BoxFuture<'static, (Subscription, Batch)>),
}

impl Reading {
    /// What has been read. Waits for ever where nothing is being read. Safe to cancel.
    pub(super) async fn next(&mut self) -> Batch {
        let Self::Busy(read) = self else { return pending().await };
        let (subscription, batch) = read.await;
        *self = Self::Resting(subscription);
        batch
    }
}

impl Group {
    /// Reads while there are consumers: a group without any costs nothing.
    pub(super) fn read_while_wanted(&mut self) {
        if self.consumers.active() == 0 {
            self.reading = Reading::Idle;
            self.is_live = false;
            return;
        }
        let room = self.room();
        if room == 0 || self.is_exhausted {
            return;
        }
        let mut subscription = match std::mem::replace(&mut self.reading, Reading::Idle) {
            Reading::Resting(subscription) => subscription,
            busy @ Reading::Busy(_) => {
                self.reading = busy;
                return;
            }
            Reading::Idle => {
                let after = self.progress.read_to();
                self.source.follow(&self.log, after, self.settings.resolve_links)
            }
        };
        self.reading = Reading::Busy(Box::pin(async move {
            let batch = subscription.next_batch(room).await;
            (subscription, batch)
        }));
    }

    /// How many events may be read.
    fn room(&self) -> usize {
        if !self.has_room() {
            return 0;
        }
        let settings = &self.settings;
        let buffer =
            if self.is_live { settings.live_buffer_size } else { settings.history_buffer_size };
        let room = (buffer as usize).saturating_sub(self.buffer.len());
        room.min(settings.read_batch_size as usize).min(READ_MAX)
    }

    /// Whether the group may hold more.
    pub(super) fn has_room(&self) -> bool {
        self.held < HELD_MAX
            && self.held_bytes < HELD_BYTES_MAX
            && (self.held_bytes < HELD_BYTES_ALWAYS || !self.level.borrow().is_full)
    }

    /// Takes in what was read.
    pub(super) fn accept(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::Event(event) => {
                    let Some(place) = self.source.place(&event) else { continue };
                    // An event that is gone leaves nothing to work on.
                    if event.event.is_none() || self.source.is_state(&event) {
                        self.progress.pass(place);
                        self.saving.passed(1);
                        continue;
                    }
                    let strategy = self.settings.strategy;
                    let mut message = Message::new(event, Origin::Source(place), strategy);
                    self.progress.begin(place);
                    self.hold(&mut message);
                    self.buffer.push(message);
                }
                Notice::Checkpoint(place) => {
                    self.progress.pass(place);
                    self.saving.passed(FILTER_INTERVAL);
                }
                Notice::CaughtUp(place) => {
                    self.is_live = true;
                    if let Some(place) = place {
                        self.progress.pass(place);
                    }
                }
                Notice::FellBehind(_) => self.is_live = false,
            }
        }
    }
}
