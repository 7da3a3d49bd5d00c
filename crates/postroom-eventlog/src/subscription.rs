//! Following a stream or the whole log, from any place to its end and beyond.

use crate::event::ResolvedEvent;
use crate::eventlog::{AllPage, Direction, EventLog, StreamState, blocking};
use crate::expected::ReadError;
use crate::filter::Filter;
use crate::index::Key;
use crate::reader::Reader;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::watch;

/// Where a subscription begins. The event at a place is not delivered again: a subscription goes on
/// after what its reader has seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// With the first event.
    Beginning,
    /// With what comes from now on.
    End,
    /// After this revision (of a stream), or after this position (of the whole log).
    After(u64),
}

/// What a subscription tells.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all notices are events")]
pub enum Notice {
    /// An event.
    Event(ResolvedEvent),
    /// A filter has passed over events up to this position, which is a place to resume from.
    Checkpoint(u64),
    /// Everything that is there has been told; what follows is told as it is appended. With the
    /// revision or position to resume from, if there is any event.
    CaughtUp(Option<u64>),
    /// Events come faster than they are taken. With the revision or position to resume from.
    FellBehind(Option<u64>),
}

/// Why a subscription ended.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError {
    /// The stream was tombstoned, or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log was closed.
    #[error("the log was closed")]
    Closed,
}

/// How many events are read at once.
const PAGE: usize = 1_024;
/// A live subscription that has had so many full pages, and is not at the end, has fallen behind.
const BEHIND_PAGES: usize = 32;

/// Follows a stream or the whole log. It holds one page of events at most: whoever is slow has the
/// rest read from disk when its turn comes.
#[derive(Debug)]
pub struct Subscription {
    reader: Arc<Reader>,
    end: watch::Receiver<u64>,
    closed: watch::Receiver<bool>,
    source: Source,
    resolve_links: bool,
    ready: VecDeque<Notice>,
    /// Where the reader would resume.
    resume: Option<u64>,
    is_live: bool,
    /// Whether there may be something to read without waiting.
    has_more: bool,
    full_pages: usize,
}

#[derive(Clone, Debug)]
enum Source {
    Stream {
        name: String,
        /// The next revision; none before the end is known where it begins there.
        next: Option<u64>,
        /// See [`crate::index::Index::changed_extent`].
        flushes: u64,
    },
    All {
        next: Option<u64>,
        /// The position that is not told again.
        seen: Option<u64>,
        filter: Option<Arc<Filtered>>,
        /// How many events the filter has passed since the last checkpoint.
        considered: u64,
        /// The last event that was looked at, if no checkpoint has named it.
        unnamed: Option<u64>,
    },
}

#[derive(Debug)]
struct Filtered {
    filter: Filter,
    interval: u64,
}

impl EventLog {
    /// Follows a stream, which need not be there yet.
    #[must_use]
    pub fn subscribe_to_stream(
        &self,
        stream: &str,
        start: Start,
        resolve_links: bool,
    ) -> Subscription {
        let next = match start {
            Start::Beginning => Some(0),
            Start::End => None,
            Start::After(revision) => Some(revision.saturating_add(1)),
        };
        let source = Source::Stream { name: stream.to_owned(), next, flushes: u64::MAX };
        Subscription::new(self, source, start, resolve_links)
    }

    /// Follows the whole log. With a filter, a checkpoint is told each time that `interval` events
    /// have been looked at, and before the subscription has caught up.
    #[must_use]
    pub fn subscribe_to_all(
        &self,
        start: Start,
        filter: Option<(Filter, u64)>,
        resolve_links: bool,
    ) -> Subscription {
        let (next, seen) = match start {
            Start::Beginning => (Some(0), None),
            Start::End => (None, None),
            Start::After(position) => (Some(position), Some(position)),
        };
        let filter = filter
            .map(|(filter, interval)| Arc::new(Filtered { filter, interval: interval.max(1) }));
        let source = Source::All { next, seen, filter, considered: 0, unnamed: None };
        Subscription::new(self, source, start, resolve_links)
    }
}

impl Subscription {
    fn new(log: &EventLog, source: Source, start: Start, resolve_links: bool) -> Self {
        let resume = match start {
            Start::After(place) => Some(place),
            Start::Beginning | Start::End => None,
        };
        Self {
            reader: Arc::clone(log.reader()),
            end: log.end(),
            closed: log.reader().log.watch_closed(),
            source,
            resolve_links,
            ready: VecDeque::new(),
            resume,
            is_live: false,
            has_more: true,
            full_pages: 0,
        }
    }

    /// What comes next. Safe to cancel: nothing is lost then.
    ///
    /// # Errors
    /// See [`SubscriptionError`]; it has ended then.
    pub async fn next(&mut self) -> Result<Notice, SubscriptionError> {
        loop {
            if let Some(notice) = self.ready.pop_front() {
                return Ok(notice);
            }
            self.fill().await?;
        }
    }

    /// What is at hand, at most `max` notices. Waits until there is one. Safe to cancel.
    ///
    /// # Errors
    /// See [`SubscriptionError`]; it has ended then.
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Notice>, SubscriptionError> {
        while self.ready.is_empty() {
            self.fill().await?;
        }
        if self.ready.len() <= max {
            // With its memory: whoever waits for the next notice keeps none.
            return Ok(std::mem::take(&mut self.ready).into());
        }
        Ok(self.ready.drain(..max.max(1)).collect())
    }

    /// Waits until there is something to read, where everything was told, and reads a page. A drop
    /// of the future before its end changes nothing.
    async fn fill(&mut self) -> Result<(), SubscriptionError> {
        if !self.has_more {
            self.wait().await?;
            self.has_more = true;
        }
        if *self.closed.borrow() {
            return Err(SubscriptionError::Closed);
        }
        // What comes while a page is read is news.
        self.end.mark_unchanged();
        let (reader, source) = (Arc::clone(&self.reader), self.source.clone());
        let (resolve_links, is_live) = (self.resolve_links, self.is_live);
        let read = blocking(move || source.read(&reader, resolve_links, is_live)).await?;
        self.take(read);
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), SubscriptionError> {
        loop {
            tokio::select! {
                changed = self.end.changed() => changed.map_err(|_| SubscriptionError::Closed)?,
                _ = self.closed.wait_for(|is_closed| *is_closed) => {
                    return Err(SubscriptionError::Closed);
                }
            }
            let Source::Stream { name, next, flushes } = &mut self.source else { return Ok(()) };
            let key = Key::of(name);
            let changed = self.reader.index.changed_extent(key, flushes);
            let changed = changed.map_err(ReadError::from)?;
            // Deletions show in the metadata stream only, and change nothing for who follows.
            if changed.is_some_and(|it| it.tombstone.is_some() || Some(it.next) > *next) {
                return Ok(());
            }
        }
    }

    fn take(&mut self, read: Read) {
        let Read { source, notices, resume, is_end } = read;
        self.source = source;
        self.resume = resume.or(self.resume);
        self.ready.extend(notices);
        self.has_more = !is_end;
        if is_end {
            self.full_pages = 0;
            if !std::mem::replace(&mut self.is_live, true) {
                self.ready.push_back(Notice::CaughtUp(self.resume));
            }
            return;
        }
        self.full_pages += 1;
        if self.is_live && self.full_pages >= BEHIND_PAGES {
            self.is_live = false;
            self.ready.push_back(Notice::FellBehind(self.resume));
        }
    }
}

/// What a look at the log has given.
struct Read {
    /// Where to go on.
    source: Source,
    notices: Vec<Notice>,
    resume: Option<u64>,
    is_end: bool,
}

impl Source {
    fn read(self, reader: &Reader, resolve_links: bool, is_live: bool) -> Result<Read, ReadError> {
        match self {
            Self::Stream { name, next, flushes } => {
                read_stream(reader, name, next, flushes, resolve_links)
            }
            Self::All { .. } => self.read_all(reader, resolve_links, is_live),
        }
    }

    fn read_all(
        self,
        reader: &Reader,
        resolve_links: bool,
        is_live: bool,
    ) -> Result<Read, ReadError> {
        let Self::All { next, seen, filter, mut considered, mut unnamed } = self else {
            return Err(ReadError::Io(std::io::Error::other("a stream is not the whole log")));
        };
        let Some(from) = next else {
            // It begins at the end: after the last event that is there.
            let end = reader.log.end();
            let last = reader.read_all(end, Direction::Backwards, 1, None, false)?.last;
            let source = Self::All { next: Some(end), seen: None, filter, considered, unnamed };
            return Ok(Read { source, notices: Vec::new(), resume: last, is_end: true });
        };
        let with = filter.as_ref().map(|filtered| &filtered.filter);
        // After how many events of the page which checkpoint comes.
        let mut checkpoints = Vec::new();
        let mut look = |position, events| {
            if let Some(filtered) = &filter
                && Some(position) != seen
            {
                considered += 1;
                unnamed = Some(position);
                if considered >= filtered.interval {
                    checkpoints.push((events, position));
                    (considered, unnamed) = (0, None);
                }
            }
        };
        let forwards = Direction::Forwards;
        let page = reader.read_all_seen(from, forwards, PAGE, with, resolve_links, &mut look)?;
        let AllPage { events, next, last, is_end, .. } = page;
        // While it is live, only the interval counts.
        if let (true, Some(position)) = (is_end && !is_live, unnamed) {
            checkpoints.push((events.len(), position));
            (considered, unnamed) = (0, None);
        }
        let mut notices: Vec<Notice> = Vec::with_capacity(events.len() + checkpoints.len());
        let mut checkpoints = checkpoints.into_iter().peekable();
        for (told, event) in events.into_iter().map(Some).chain([None]).enumerate() {
            while let Some((_, position)) = checkpoints.next_if(|(events, _)| *events <= told) {
                notices.push(Notice::Checkpoint(position));
            }
            let position = |event: &ResolvedEvent| event.original().map(|event| event.position());
            notices.extend(event.filter(|event| position(event) != seen).map(Notice::Event));
        }
        let last = last.filter(|last| Some(*last) != seen);
        let source = Self::All { next: Some(next), seen, filter, considered, unnamed };
        Ok(Read { source, notices, resume: last, is_end })
    }
}

fn read_stream(
    reader: &Reader,
    name: String,
    next: Option<u64>,
    flushes: u64,
    resolve_links: bool,
) -> Result<Read, ReadError> {
    let Some(from) = next else {
        let (next, resume) = match reader.state(&name)? {
            StreamState::Tombstoned => return Err(ReadError::StreamDeleted),
            StreamState::There { last, .. } => (last + 1, Some(last)),
            // One that was deleted goes on with the revision that it had.
            StreamState::Missing => (reader.extent(&name)?.next, None),
        };
        let source = Source::Stream { name, next: Some(next), flushes };
        return Ok(Read { source, notices: Vec::new(), resume, is_end: true });
    };
    let page = reader.read_stream(&name, from, Direction::Forwards, PAGE, resolve_links)?;
    let last = page.events.last().and_then(ResolvedEvent::original).map(|event| event.revision());
    let next = match (page.next, page.state) {
        (Some(next), _) => next,
        (None, StreamState::There { last, .. }) => from.max(last + 1),
        (None, StreamState::Missing | StreamState::Tombstoned) => from,
    };
    let notices = page.events.into_iter().map(Notice::Event).collect();
    let source = Source::Stream { name, next: Some(next), flushes };
    Ok(Read { source, notices, resume: last, is_end: page.next.is_none() })
}
