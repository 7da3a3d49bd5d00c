//! The messages that a group has given up on for now, and their way back.
//!
//! Parked messages are links in a stream of the group's. A replay reads each of them once. What has
//! been replayed stays in the stream until it is finished, so that a crash loses nothing, and is
//! then hidden by the stream's `$tb`, so that no other replay finds it.

use super::group_id::GroupId;
use super::message::Message;
use super::stream_metadata::{self, StateError};
use crate::event::{LINK_TYPE, NewEvent, RecordedEvent, ResolvedEvent};
use crate::eventlog::{Direction, EventLog, StreamState};
use crate::expected::{AppendError, ExpectedRevision, ReadError};
use serde::Serialize;
use std::collections::BTreeSet;
use uuid::Uuid;

/// The longest reason that is stored with a parked message, in bytes.
const REASON_MAX: usize = 1_024;
/// After how many replayed messages the stream is truncated though the replay is not over.
const TRUNCATE_EVERY: u64 = 500;

/// A message to park, and why.
#[derive(Debug)]
pub(super) struct ToPark {
    pub(super) message: Message,
    pub(super) reason: String,
}

/// The parked messages of a group.
#[derive(Debug)]
pub(super) struct Parked {
    stream: String,
    /// The first revision that has not been replayed.
    next: u64,
    /// The revision after the last one.
    end: u64,
    /// Up to which revision to replay.
    until: u64,
    /// What has been replayed and is not finished.
    unfinished: BTreeSet<u64>,
    /// The stream begins here.
    first: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ParkedMetadata<'a> {
    reason: &'a str,
    original_id: Option<Uuid>,
    retry_count: u32,
}

impl Parked {
    /// What is parked of this group.
    pub(super) async fn load(log: &EventLog, id: &GroupId) -> Result<Self, ReadError> {
        let stream = id.parked_stream();
        let unfinished = BTreeSet::new();
        let mut parked = Self { stream, next: 0, end: 0, until: 0, unfinished, first: 0 };
        parked.refresh(log).await?;
        Ok(parked)
    }

    /// Looks again what is there: clients may truncate or delete the stream.
    pub(super) async fn refresh(&mut self, log: &EventLog) -> Result<(), ReadError> {
        match log.stream_state(&self.stream).await? {
            StreamState::There { first, last } => {
                self.end = last + 1;
                self.next = self.next.max(first);
                self.first = self.first.max(first);
            }
            StreamState::Missing | StreamState::Tombstoned => self.next = self.end,
        }
        Ok(())
    }

    /// How many messages wait for a replay.
    pub(super) fn count(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Asks for a replay of this many messages, of all without a number. What a replay that is
    /// under way has read already is not read again.
    pub(super) fn replay(&mut self, count: Option<u64>) {
        let until = count.map_or(self.end, |count| self.end.min(self.next.saturating_add(count)));
        self.until = self.until.max(until);
    }

    /// Whether there is more to read for a replay.
    pub(super) fn is_replaying(&self) -> bool {
        self.next < self.until
    }

    /// Reads what is next in a replay: each link's revision, and what it points at. What is gone
    /// meanwhile is left out.
    pub(super) async fn read(
        &mut self,
        log: &EventLog,
        limit: u32,
    ) -> Result<Vec<(u64, ResolvedEvent)>, ReadError> {
        let limit = u64::from(limit).min(self.until.saturating_sub(self.next));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let read = log.read_stream(&self.stream, self.next, Direction::Forwards, limit, false);
        let page = match read.await {
            Ok(page) => page,
            Err(ReadError::StreamDeleted) => {
                self.next = self.until;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut messages = Vec::with_capacity(page.events.len());
        let mut next = self.next;
        for link in page.events.into_iter().filter_map(|event| event.event) {
            let revision = link.revision();
            if revision >= self.until {
                next = self.until;
                break;
            }
            next = revision + 1;
            if let Some(event) = target(log, &link).await? {
                let event = ResolvedEvent { event: Some(event), link: Some(link) };
                messages.push((revision, event));
            }
        }
        // A page without anything new is the end of the stream.
        self.next = if next > self.next { next } else { self.until };
        self.unfinished.extend(messages.iter().map(|(revision, _)| *revision));
        Ok(messages)
    }

    /// A replayed message is acknowledged, parked again or skipped.
    pub(super) fn finish(&mut self, revision: u64) {
        self.unfinished.remove(&revision);
    }

    /// Parks messages.
    pub(super) async fn park(
        &mut self,
        log: &EventLog,
        messages: &[ToPark],
    ) -> Result<(), StateError> {
        let links = messages.iter().filter_map(|parked| link(&parked.message, &parked.reason));
        let links: Vec<NewEvent> = links.collect();
        if links.is_empty() {
            return Ok(());
        }
        let count = links.len() as u64;
        let appended = log.append(&self.stream, ExpectedRevision::Any, links).await?;
        if let Some(last) = appended.revision {
            let was_empty = self.count() == 0;
            self.end = last + 1;
            if was_empty {
                self.next = self.end - count;
            }
        }
        Ok(())
    }

    /// Whether [`Parked::truncate`] should be called.
    pub(super) fn should_truncate(&self) -> bool {
        let low = self.low();
        low > self.first && (self.next >= self.until || low - self.first >= TRUNCATE_EVERY)
    }

    /// Hides what has been replayed and finished.
    pub(super) async fn truncate(&mut self, log: &EventLog) -> Result<(), StateError> {
        let low = self.low();
        if low > self.first {
            match stream_metadata::truncate(log, &self.stream, low).await {
                // There is nothing to hide in a stream that is tombstoned.
                Ok(()) | Err(StateError::Append(AppendError::StreamDeleted)) => {}
                Err(error) => return Err(error),
            }
            self.first = low;
        }
        Ok(())
    }

    /// Whether a message is finished that was parked after one that is not. Truncation cannot tell
    /// these apart: the latter has to be parked again.
    pub(super) fn has_gaps(&self) -> bool {
        self.next - self.low() != self.unfinished.len() as u64
    }

    fn low(&self) -> u64 {
        self.unfinished.first().copied().unwrap_or(self.next)
    }
}

/// A link to the message's event. Where the event came by a link, the new one points at the event.
fn link(message: &Message, reason: &str) -> Option<NewEvent> {
    let (revision, stream) = message.target()?;
    let cut = (0..=reason.len().min(REASON_MAX)).rev().find(|cut| reason.is_char_boundary(*cut));
    let reason = &reason[..cut.unwrap_or(0)];
    let original_id = message.id();
    let metadata = ParkedMetadata { reason, original_id, retry_count: message.retries };
    let metadata = serde_json::to_vec(&metadata).unwrap_or_default();
    let mut link = NewEvent::json(LINK_TYPE, format!("{revision}@{stream}"));
    link.is_json = false;
    link.metadata = metadata.into();
    Some(link)
}

async fn target(log: &EventLog, link: &RecordedEvent) -> Result<Option<RecordedEvent>, ReadError> {
    let Some((revision, stream)) = link.link_target() else { return Ok(None) };
    let page = match log.read_stream(&stream, revision, Direction::Forwards, 1, false).await {
        Ok(page) => page,
        Err(ReadError::StreamDeleted) => return Ok(None),
        Err(error) => return Err(error),
    };
    let event = page.events.into_iter().next().and_then(|event| event.event);
    Ok(event.filter(|event| event.revision() == revision))
}
