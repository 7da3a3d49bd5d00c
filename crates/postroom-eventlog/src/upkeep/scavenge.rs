//! Freeing the space of events that nobody can read any more.

use crate::event::{RecordedEvent, TOMBSTONE_TYPE};
use crate::eventlog::StreamState;
use crate::expected::ReadError;
use crate::index::{Key, category_of};
use crate::log::record::NO_NUMBER;
use crate::log::segment::{Compactor, HEADER, Segment};
use crate::log::{Scan, Scanned};
use crate::reader::Reader;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// What a scavenge did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Scavenged {
    /// How many events are gone.
    pub events: u64,
    /// How many bytes are free.
    pub bytes: u64,
}

/// How many streams' states are remembered while one segment is looked at.
const REMEMBERED: usize = 16_384;

/// Runs one scavenge at a time.
#[derive(Debug, Default)]
pub(crate) struct Scavenger {
    running: Mutex<()>,
    /// How often a stop was asked for: a scavenge ends when that has changed since it was begun.
    stops: AtomicU64,
    is_closed: AtomicBool,
}

impl Scavenger {
    /// What a scavenge that begins now is told apart by from those that were asked to stop.
    pub(crate) fn begin(&self) -> u64 {
        self.stops.load(Ordering::Acquire)
    }

    /// Looks at every segment but the last. Waits for one that is under way.
    pub(crate) fn run(&self, reader: &Reader, begun: u64) -> Result<Scavenged, ReadError> {
        let _alone = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let must_end = || {
            self.is_closed.load(Ordering::Acquire) || self.stops.load(Ordering::Acquire) != begun
        };
        let mut done = Scavenged::default();
        let segments = reader.log.segments();
        for pair in segments.windows(2) {
            if must_end() {
                break;
            }
            let one = scavenge_segment(reader, &pair[0], pair[1].base)?;
            done.events += one.events;
            done.bytes += one.bytes;
        }
        Ok(done)
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.running.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Release);
    }

    /// Lets none begin any more, and waits until none is under way.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn scavenge_segment(
    reader: &Reader,
    segment: &Arc<Segment>,
    end: u64,
) -> Result<Scavenged, ReadError> {
    // Most segments have nothing to free, and are not written again for that.
    let mut removable = Removable::new(reader);
    let mut gone = 0;
    for_each(segment, end, |event| {
        gone += u64::from(removable.contains(&event)?);
        Ok(())
    })?;
    if gone == 0 {
        return Ok(Scavenged::default());
    }
    let disk = reader.log.disk();
    let before = segment.file.len()?;
    let mut compactor = Compactor::begin(disk, segment.number, segment.base, end, segment.salt)?;
    let mut events = 0;
    for_each(segment, end, |event| {
        if removable.contains(&event)? {
            events += 1;
            return Ok(());
        }
        Ok(compactor.keep(&event)?)
    })?;
    let compacted = compactor.finish(disk)?;
    let bytes = before.saturating_sub(compacted.file.len()?);
    reader.log.replace(compacted);
    Ok(Scavenged { events, bytes })
}

fn for_each(
    segment: &Arc<Segment>,
    end: u64,
    mut see: impl FnMut(RecordedEvent) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut scan = Scan::new(Arc::clone(segment), HEADER as u64, segment.records_end(end));
    loop {
        match scan.next()? {
            Scanned::Record(_, event) => see(event)?,
            Scanned::End => return Ok(()),
            Scanned::Damage(offset) => return Err(segment.damaged(offset)),
        }
    }
}

/// Which events nobody can read any more. What ends a stream, a category or a type stays: numbers
/// go on from it when the index is made again.
struct Removable<'a> {
    reader: &'a Reader,
    first: HashMap<String, (u64, u64)>,
}

impl<'a> Removable<'a> {
    fn new(reader: &'a Reader) -> Self {
        Self { reader, first: HashMap::new() }
    }

    fn contains(&mut self, event: &RecordedEvent) -> Result<bool, ReadError> {
        if event.event_type() == TOMBSTONE_TYPE {
            return Ok(false);
        }
        let (first, next) = self.readable(event.stream())?;
        if event.revision() >= first || event.revision() + 1 == next {
            return Ok(false);
        }
        let head = event.head();
        let category = category_of(event.stream())
            .filter(|_| head.category_number != NO_NUMBER)
            .map(|category| (Key::Category(category), head.category_number));
        let event_type = (head.type_number != NO_NUMBER)
            .then(|| (Key::EventType(event.event_type()), head.type_number));
        for (key, number) in [category, event_type].into_iter().flatten() {
            if self.reader.index.extent(key)?.next == number + 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// From which revision on a stream may be read, and which one comes next.
    fn readable(&mut self, stream: &str) -> Result<(u64, u64), ReadError> {
        if let Some(known) = self.first.get(stream) {
            return Ok(*known);
        }
        if self.first.len() >= REMEMBERED {
            self.first.clear();
        }
        let next = self.reader.extent(stream)?.next;
        let readable = match self.reader.state(stream)? {
            StreamState::There { first, .. } => (first, next),
            // All of it may go but its last event, by which a deleted stream goes on.
            StreamState::Missing => (u64::MAX, next),
            StreamState::Tombstoned => (u64::MAX, 0),
        };
        self.first.insert(stream.to_owned(), readable);
        Ok(readable)
    }
}
