//! What a group writes to the log: its checkpoint, and its parked messages.

use super::reading::Reading;
use super::{Group, StopReason};
use crate::expected::AppendError;
use crate::persistent::checkpoint;
use crate::persistent::message::{Message, Origin};
use crate::persistent::parked::ToPark;
use crate::persistent::settings::GroupSettings;
use crate::persistent::source::FILTER_INTERVAL;
use crate::persistent::stream_metadata::StateError;
use crate::persistent::subscriber::Ended;
use std::time::Duration;
use tokio::time::Instant;

/// How many messages are parked in one append.
const PARK_BATCH: usize = 100;
/// How long to wait after the log could not write.
const PAUSE: Duration = Duration::from_secs(1);

/// When to write a checkpoint.
#[derive(Debug)]
pub(super) struct Saving {
    /// The last one that was written.
    last: Option<u64>,
    /// How many messages were finished since.
    finished: u64,
    /// How many events were passed over since: a group that finds few events must not look at the
    /// same ones after every restart.
    passed: u64,
    /// When the first of these was.
    since: Option<Instant>,
    /// Nothing is written before, because the log could not write.
    paused_until: Option<Instant>,
}

impl Saving {
    pub(super) fn new(last: Option<u64>) -> Self {
        Self { last, finished: 0, passed: 0, since: None, paused_until: None }
    }

    /// A message was finished.
    pub(super) fn finished(&mut self) {
        self.finished += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    /// Events were passed over.
    pub(super) fn passed(&mut self, events: u64) {
        self.passed += events;
        self.since.get_or_insert_with(Instant::now);
    }

    /// The last checkpoint that was written.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    fn due(&self, safe: Option<u64>, settings: &GroupSettings) -> Option<Instant> {
        let since = self.since?;
        if safe.is_none() || safe == self.last {
            return None;
        }
        if self.finished >= u64::from(settings.max_checkpoint_count.max(1)) {
            return Some(since);
        }
        let is_enough = self.finished > 0
            && self.finished >= u64::from(settings.min_checkpoint_count)
            || self.passed >= FILTER_INTERVAL;
        let after = Duration::from_millis(u64::from(settings.checkpoint_after_ms));
        is_enough.then_some(since + after)
    }

    fn saved(&mut self, place: u64) {
        *self = Self::new(Some(place));
    }
}

impl Group {
    /// When something is to be written next.
    pub(super) fn store_due(&self) -> Option<Instant> {
        if self.broken.is_some() {
            return None;
        }
        let checkpoint = self.saving.due(self.progress.safe(), &self.settings);
        let is_waiting = !self.parking.is_empty() || self.parked.should_truncate();
        let waiting = is_waiting.then(Instant::now);
        let due = [checkpoint, waiting].into_iter().flatten().min()?;
        Some(self.saving.paused_until.map_or(due, |pause| due.max(pause)))
    }

    /// Writes what is due. What the log cannot write now is written later.
    pub(super) async fn store_if_due(&mut self) {
        if self.is_paused() || self.broken.is_some() {
            return;
        }
        if self.parked.should_truncate()
            && let Err(error) = self.parked.truncate(&self.log).await
        {
            self.pause(&error);
        }
        let safe = self.progress.safe();
        let due = self.saving.due(safe, &self.settings);
        if due.is_some_and(|due| due <= Instant::now())
            && let Some(place) = safe
        {
            self.store_checkpoint(place).await;
        }
    }

    /// Parks what is to be parked.
    pub(super) async fn park(&mut self) {
        while !self.parking.is_empty() && !self.is_paused() {
            let count = self.parking.len().min(PARK_BATCH);
            match self.parked.park(&self.log, &self.parking[..count]).await {
                Ok(()) => {}
                Err(StateError::Append(AppendError::StreamDeleted)) => {
                    self.store_last_checkpoint().await;
                    return self.give_up(&self.id.parked_stream());
                }
                Err(error) => return self.pause(&error),
            }
            let parked: Vec<ToPark> = self.parking.drain(..count).collect();
            for ToPark { message, .. } in parked {
                self.finish(&message);
            }
        }
    }

    /// Ends the group's work. What was replayed and is not finished is parked again.
    pub(super) async fn end(mut self, why: StopReason) {
        // Whoever asks from now on learns that the group has ended.
        self.commands.close();
        self.reading = Reading::Idle;
        if why != StopReason::Deleted {
            self.saving.paused_until = None;
            self.park().await;
            self.store_everything().await;
        }
        let why = match why {
            StopReason::Deleted | StopReason::Restarted => Ended::Dropped,
            StopReason::Closing => Ended::Unavailable,
        };
        for consumer in self.consumers.remove_all() {
            consumer.end(why.clone());
        }
    }

    async fn store_everything(&mut self) {
        self.store_last_checkpoint().await;
        if self.broken.is_some() {
            return;
        }
        if self.parked.has_gaps() {
            let sent = self.flight.take_all().into_iter().map(|sent| sent.message);
            let waiting = self.retries.take_all().into_iter().chain(self.replays.take_all());
            let messages: Vec<Message> = sent.chain(waiting).collect();
            let is_parked = |message: &Message| matches!(message.origin, Origin::Parked(_));
            for message in messages.into_iter().filter(is_parked) {
                let reason = "the replay did not finish".to_owned();
                self.parking.push(ToPark { message, reason });
            }
            self.park().await;
        }
        if self.parking.is_empty()
            && let Err(error) = self.parked.truncate(&self.log).await
        {
            self.pause(&error);
        }
    }

    async fn store_last_checkpoint(&mut self) {
        if let Some(place) = self.progress.safe()
            && Some(place) != self.saving.last
            && self.saving.since.is_some()
        {
            self.store_checkpoint(place).await;
        }
    }

    async fn store_checkpoint(&mut self, place: u64) {
        match checkpoint::store(&self.log, &self.id, &self.source, place).await {
            Ok(()) => self.saving.saved(place),
            Err(StateError::Append(AppendError::StreamDeleted)) => {
                self.give_up(&self.id.checkpoint_stream());
            }
            Err(error) => self.pause(&error),
        }
    }

    fn is_paused(&self) -> bool {
        self.saving.paused_until.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&mut self, error: &StateError) {
        let error = error as &dyn std::error::Error;
        tracing::warn!(group = %self.id, error, "persistent subscription cannot store its state");
        self.saving.paused_until = Some(Instant::now() + PAUSE);
    }
}
