//! What can be read: events by stream and revision, and by position, as metadata lets them be seen.
//!
//! Everything here blocks on the disk.

use crate::event::{LINK_TYPE, RecordedEvent, ResolvedEvent, TOMBSTONE_REVISION};
use crate::eventlog::{AllPage, Direction, StreamPage, StreamState};
use crate::expected::ReadError;
use crate::filter::Filter;
use crate::index::{Extent, Index, IndexError, Key, category_of};
use crate::log::record::{NO_NUMBER, Parts};
use crate::log::{Cursor, Log, WINDOW};
use crate::metadata::{Limits, METADATA_PREFIX, metadata_stream, now_ticks};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// No page has many more bytes, unless a single event does. Each reader holds one.
const PAGE_BYTES: usize = 256 << 10;
/// How long a page with a filter may take: patterns come from clients.
const PAGE_TIME: Duration = Duration::from_millis(50);
/// How many events are looked up for a page at most, found or not: many may be gone.
const LOOKUPS: usize = 4_096;
/// How many places are looked up at once.
const LOOKUP: usize = 512;
/// What is read ahead where events stand close to each other, and where they do not.
const NEAR: usize = WINDOW;
const FAR: usize = 4 << 10;
/// How many streams' limits are remembered.
const REMEMBERED: usize = 4_096;

/// The log and its index.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) log: Arc<Log>,
    pub(crate) index: Arc<Index>,
    /// By stream: the revision of the metadata that says so, and what it says.
    limits: Mutex<HashMap<String, (u64, Limits)>>,
}

impl From<IndexError> for ReadError {
    fn from(error: IndexError) -> Self {
        Self::Index(error.into())
    }
}

impl Reader {
    pub(crate) fn new(log: Arc<Log>, index: Arc<Index>) -> Self {
        Self { log, index, limits: Mutex::default() }
    }

    /// How far a stream is; a metadata stream is deleted with its stream.
    pub(crate) fn extent(&self, stream: &str) -> Result<Extent, ReadError> {
        let mut extent = self.index.extent(Key::of(stream))?;
        if let Some(described) = stream.strip_prefix(METADATA_PREFIX) {
            let of_stream = self.index.extent(Key::of(described))?;
            extent.tombstone = extent.tombstone.or(of_stream.tombstone);
        }
        Ok(extent)
    }

    /// The limits that a stream's metadata sets.
    pub(crate) fn limits(&self, stream: &str) -> Result<Limits, ReadError> {
        if stream.starts_with(METADATA_PREFIX) {
            return Ok(Limits::OF_METADATA);
        }
        let name = metadata_stream(stream);
        let Some(last) = self.index.extent(Key::Stream(&name))?.next.checked_sub(1) else {
            return Ok(Limits::default());
        };
        let known = self.limits.lock().unwrap_or_else(PoisonError::into_inner).get(stream).copied();
        if let Some((_, limits)) = known.filter(|(revision, _)| *revision == last) {
            return Ok(limits);
        }
        let event = self.event(&name, last)?;
        let limits = event.map_or_else(Limits::default, |event| Limits::parse(&event.data()));
        let mut remembered = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(stream.to_owned(), (last, limits));
        Ok(limits)
    }

    /// What is known of a stream without reading it.
    pub(crate) fn state(&self, stream: &str) -> Result<StreamState, ReadError> {
        let extent = self.extent(stream)?;
        if extent.tombstone.is_some() {
            return Ok(StreamState::Tombstoned);
        }
        let Some(last) = extent.next.checked_sub(1) else { return Ok(StreamState::Missing) };
        let limits = self.limits(stream)?;
        if limits.is_deleted() {
            return Ok(StreamState::Missing);
        }
        let mut first = limits.first(extent.next);
        if let Some(oldest) = limits.oldest(now_ticks()) {
            first = self.first_since(stream, first, extent.next, oldest)?;
        }
        Ok(StreamState::There { first, last })
    }

    /// The first of some revisions that was not created before `oldest`. Times never go back.
    fn first_since(
        &self,
        stream: &str,
        first: u64,
        next: u64,
        oldest: u64,
    ) -> Result<u64, ReadError> {
        let (mut low, mut high) = (first, next);
        let mut cursor = Cursor::new(&self.log, FAR);
        while low < high {
            let middle = low.midpoint(high);
            // What is gone was older than what is there.
            let found = self.index.positions(Key::of(stream), middle, 1)?;
            let event = match found.first() {
                Some((number, position)) if *number < high => cursor.at(*position)?,
                Some(_) | None => None,
            };
            if event.is_some_and(|event| event.created_ticks() >= oldest) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// One event of a stream, whatever its metadata says.
    pub(crate) fn event(
        &self,
        stream: &str,
        revision: u64,
    ) -> Result<Option<RecordedEvent>, ReadError> {
        let found = self.index.positions(Key::of(stream), revision, 1)?;
        match found.first() {
            Some((number, position)) if *number == revision => {
                Cursor::new(&self.log, FAR).at(*position)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// The last event of the log.
    pub(crate) fn last(&self) -> Result<Option<RecordedEvent>, ReadError> {
        let mut cursor = Cursor::in_order(&self.log, FAR);
        cursor.before(cursor.end())
    }

    /// The event at a position.
    pub(crate) fn at(&self, position: u64) -> Result<Option<RecordedEvent>, ReadError> {
        Cursor::new(&self.log, FAR).at(position)
    }

    /// See [`crate::EventLog::read_stream`].
    pub(crate) fn read_stream(
        &self,
        stream: &str,
        from: u64,
        direction: Direction,
        limit: usize,
        resolve_links: bool,
    ) -> Result<StreamPage, ReadError> {
        let state = self.state(stream)?;
        let (first, last) = match state {
            StreamState::Tombstoned => return Err(ReadError::StreamDeleted),
            StreamState::Missing => {
                return Ok(StreamPage { events: Vec::new(), next: None, state });
            }
            StreamState::There { first, last } => (first, last),
        };
        let mut page = Page::new(self, stream, limit, resolve_links);
        let next = match direction {
            Direction::Forwards => page.read_forwards(from.max(first), last)?,
            Direction::Backwards => page.read_backwards(first, from.min(last))?,
        };
        Ok(StreamPage { events: page.events, next, state })
    }

    /// See [`crate::EventLog::read_all`].
    pub(crate) fn read_all(
        &self,
        from: u64,
        direction: Direction,
        limit: usize,
        filter: Option<&Filter>,
        resolve_links: bool,
    ) -> Result<AllPage, ReadError> {
        self.read_all_seen(from, direction, limit, filter, resolve_links, &mut |_, _| {})
    }

    /// The same. `seen` is told the position of each event that was looked at, and how many events
    /// the page has with it.
    pub(crate) fn read_all_seen(
        &self,
        from: u64,
        direction: Direction,
        limit: usize,
        filter: Option<&Filter>,
        resolve_links: bool,
        seen: &mut dyn FnMut(u64, usize),
    ) -> Result<AllPage, ReadError> {
        let mut cursor = Cursor::in_order(&self.log, NEAR);
        let mut resolver = Resolver::new(self);
        if let Direction::Forwards = direction {
            cursor.seek(from)?;
        }
        let mut page =
            AllPage { events: Vec::new(), next: from, last: None, considered: 0, is_end: false };
        let mut bytes = 0;
        let began = Instant::now();
        // One event at least, however long the filter takes for it.
        let has_time =
            |considered| filter.is_none() || considered == 0 || began.elapsed() < PAGE_TIME;
        while page.considered < limit && bytes < PAGE_BYTES && has_time(page.considered) {
            let event = match direction {
                Direction::Forwards => cursor.next()?,
                Direction::Backwards => cursor.before(page.next)?,
            };
            let Some(event) = event else {
                page.is_end = true;
                break;
            };
            page.considered += 1;
            page.last = Some(event.position());
            page.next = match direction {
                Direction::Forwards => event.head().end(),
                Direction::Backwards => event.position(),
            };
            let position = event.position();
            if filter.is_none_or(|filter| filter.accepts(&event)) {
                bytes += event.head().record_len();
                // Without a filter a page has nearly all of what was read ahead anyway.
                let event = if filter.is_some() { event.detached() } else { event };
                page.events.push(resolver.resolve(event, resolve_links)?);
            }
            seen(position, page.events.len());
        }
        if let Direction::Forwards = direction {
            // A reader that has everything looks again from where the log ended.
            page.is_end |= page.next >= cursor.end();
            if page.is_end && page.last.is_none() {
                page.next = page.next.max(from);
            }
        }
        Ok(page)
    }
}

/// Events of a stream, while they are collected.
struct Page<'a> {
    reader: &'a Reader,
    stream: &'a str,
    key: Key<'a>,
    limit: usize,
    resolve_links: bool,
    resolver: Resolver<'a>,
    events: Vec<ResolvedEvent>,
    bytes: usize,
    looked_up: usize,
}

impl<'a> Page<'a> {
    fn new(reader: &'a Reader, stream: &'a str, limit: usize, resolve_links: bool) -> Self {
        let (key, resolver) = (Key::of(stream), Resolver::new(reader));
        let events = Vec::new();
        let (bytes, looked_up) = (0, 0);
        Self { reader, stream, key, limit, resolve_links, resolver, events, bytes, looked_up }
    }

    fn has_room(&self) -> bool {
        self.events.len() < self.limit && self.bytes < PAGE_BYTES && self.looked_up < LOOKUPS
    }

    /// Reads from a number on; says where to go on.
    fn read_forwards(&mut self, from: u64, last: u64) -> Result<Option<u64>, ReadError> {
        let mut next = from;
        while next <= last && self.has_room() {
            let count = LOOKUP.min(self.limit - self.events.len());
            let mut found = self.reader.index.positions(self.key, next, count)?;
            found.retain(|(number, _)| *number <= last);
            let Some((furthest, _)) = found.last().copied() else { return Ok(None) };
            let mut cursor = self.cursor(&found);
            for (number, position) in found {
                next = number;
                if !self.has_room() {
                    break;
                }
                self.take(&mut cursor, number, position)?;
                next = number + 1;
            }
            if next > furthest {
                next = furthest + 1;
            }
        }
        Ok((next <= last).then_some(next))
    }

    /// Reads back from a number; says where to go on.
    fn read_backwards(&mut self, first: u64, from: u64) -> Result<Option<u64>, ReadError> {
        let mut next = Some(from);
        // Wider and wider where events are gone.
        let mut width = LOOKUP.min(self.limit) as u64;
        while let Some(upto) = next.filter(|upto| *upto >= first)
            && self.has_room()
        {
            let low = upto.saturating_sub(width.saturating_sub(1)).max(first);
            let count = usize::try_from(upto - low + 1).unwrap_or(usize::MAX);
            let mut found = self.reader.index.positions(self.key, low, count)?;
            found.retain(|(number, _)| *number <= upto);
            if found.is_empty() {
                width = width.saturating_mul(2);
                self.looked_up += 1;
            }
            let mut cursor = self.cursor(&found);
            next = low.checked_sub(1);
            for (number, position) in found.into_iter().rev() {
                if !self.has_room() {
                    next = Some(number);
                    break;
                }
                self.take(&mut cursor, number, position)?;
            }
        }
        Ok(next.filter(|number| *number >= first))
    }

    fn cursor(&self, found: &[(u64, u64)]) -> Cursor {
        let window = match (found.first(), found.last()) {
            (Some((_, first)), Some((_, last))) if found.len() > 1 => {
                let apart = (last - first) / (found.len() as u64 - 1);
                if apart < FAR as u64 { NEAR } else { FAR }
            }
            _ => FAR,
        };
        Cursor::new(&self.reader.log, window)
    }

    fn take(&mut self, cursor: &mut Cursor, number: u64, at: u64) -> Result<(), ReadError> {
        // An event that was scavenged is passed over.
        self.looked_up += 1;
        let Some(event) = cursor.at(at)? else { return Ok(()) };
        if !is_at(&event, self.key, number) {
            return Err(ReadError::IndexDamaged);
        }
        // What was read ahead may have much else.
        let event = event.detached();
        self.bytes += event.head().record_len();
        let read = if self.key.is_computed() {
            let link = link_to(&event, self.stream, number);
            match (self.resolve_links, event.event_type() == LINK_TYPE) {
                (false, _) => ResolvedEvent::plain(link),
                (true, true) => self.resolver.resolve(link, true)?,
                (true, false) => {
                    let is_readable = self.resolver.is_readable(&event)?;
                    ResolvedEvent { event: is_readable.then_some(event), link: Some(link) }
                }
            }
        } else {
            self.resolver.resolve(event, self.resolve_links)?
        };
        self.events.push(read);
        Ok(())
    }
}

/// Whether this is the event that a number of a stream stands for.
fn is_at(event: &RecordedEvent, key: Key<'_>, number: u64) -> bool {
    let head = event.head();
    match key {
        Key::Stream(name) => event.stream() == name && head.revision == number,
        Key::Category(name) => {
            category_of(event.stream()) == Some(name) && head.category_number == number
        }
        Key::EventType(name) => event.event_type() == name && head.type_number == number,
    }
}

/// The link that a computed stream has in place of an event.
fn link_to(event: &RecordedEvent, stream: &str, number: u64) -> RecordedEvent {
    let target = format!("{}@{}", event.revision(), event.stream());
    let data = event.data();
    Parts {
        is_json: false,
        is_first: true,
        is_last: true,
        position: event.position(),
        durable: 0,
        revision: number,
        category_number: NO_NUMBER,
        type_number: NO_NUMBER,
        created: event.created_ticks(),
        id: link_id(event, stream),
        stream,
        event_type: LINK_TYPE,
        metadata: &[],
        // What links to something else is passed on as it is.
        data: if event.event_type() == LINK_TYPE { &data } else { target.as_bytes() },
    }
    .event()
}

/// An id of its own for each link, the same whenever it is read.
fn link_id(event: &RecordedEvent, stream: &str) -> Uuid {
    let mut bytes = *event.id().as_bytes();
    let kind = crc32c::crc32c(stream.as_bytes()).to_be_bytes();
    let place = event.position().to_be_bytes();
    for (byte, mixed) in bytes.iter_mut().zip(place.iter().chain(&kind).cycle()) {
        *byte ^= mixed;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Follows links.
struct Resolver<'a> {
    reader: &'a Reader,
    /// The stream asked about last, and from which revision on it may be read.
    readable: Option<(String, Option<u64>)>,
}

impl<'a> Resolver<'a> {
    fn new(reader: &'a Reader) -> Self {
        Self { reader, readable: None }
    }

    fn resolve(&mut self, read: RecordedEvent, wanted: bool) -> Result<ResolvedEvent, ReadError> {
        if !wanted || read.event_type() != LINK_TYPE {
            return Ok(ResolvedEvent::plain(read));
        }
        let target = match read.link_target() {
            Some((revision, stream)) if revision < TOMBSTONE_REVISION => {
                self.reader.event(&stream, revision)?
            }
            Some(_) | None => None,
        };
        let event = match target {
            Some(event) if self.is_readable(&event)? => Some(event),
            Some(_) | None => None,
        };
        Ok(ResolvedEvent { event, link: Some(read) })
    }

    /// Whether its stream's metadata lets an event be seen.
    fn is_readable(&mut self, event: &RecordedEvent) -> Result<bool, ReadError> {
        let stream = event.stream();
        let known = self.readable.as_ref().filter(|(name, _)| name == stream);
        let first = match known {
            Some((_, first)) => *first,
            None => {
                let first = match self.reader.state(stream)? {
                    StreamState::There { first, .. } => Some(first),
                    StreamState::Missing | StreamState::Tombstoned => None,
                };
                self.readable = Some((stream.to_owned(), first));
                first
            }
        };
        Ok(first.is_some_and(|first| event.revision() >= first))
    }
}
