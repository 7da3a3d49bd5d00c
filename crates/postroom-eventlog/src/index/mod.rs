//! Where the events of a stream stand in the log.
//!
//! Everything here follows from the log and can be made again from it. What was appended lately is
//! in memory (`tail.rs`); what is older is in an embedded database (`table.rs`), which a thread
//! brings up to date. So an append never waits for the index, and memory is flat.

mod backend;
mod table;
mod tail;

pub(crate) use table::IndexError;

use crate::disk::Disk;
use crate::event::RecordedEvent;
use crate::expected::ReadError;
use crate::log::record::NO_NUMBER;
use crate::log::{Cursor, Log};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;
use table::Table;
use tail::Tail;
use uuid::Uuid;

/// How many bytes the memory takes before it is written to the table: some ten thousand events.
const FLUSH_AT: usize = 2 << 20;
/// How many it may take while an earlier part is being written. Appends wait then.
const TAIL_MAX: usize = 16 << 20;
/// How many events are noted at once while a log is opened.
const CATCH_UP: usize = 1_000;
/// How long an append waits for that.
const ROOM_LIMIT: Duration = Duration::from_secs(10);

/// A stream that has positions: one that events are appended to, or one that the log computes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Key<'a> {
    /// Events by the stream that they were appended to.
    Stream(&'a str),
    /// Events by the category of their stream.
    Category(&'a str),
    /// Events by their type.
    EventType(&'a str),
}

/// The beginning of the names of streams that the log computes.
pub(crate) const CATEGORY_PREFIX: &str = "$ce-";
pub(crate) const TYPE_PREFIX: &str = "$et-";

impl<'a> Key<'a> {
    /// The stream of this name.
    pub(crate) fn of(name: &'a str) -> Self {
        if let Some(category) = name.strip_prefix(CATEGORY_PREFIX) {
            Key::Category(category)
        } else if let Some(event_type) = name.strip_prefix(TYPE_PREFIX) {
            Key::EventType(event_type)
        } else {
            Key::Stream(name)
        }
    }

    /// Whether the log computes it.
    pub(crate) fn is_computed(self) -> bool {
        !matches!(self, Key::Stream(_))
    }
}

/// What comes before the first `-` of a stream that is not the system's own.
pub(crate) fn category_of(stream: &str) -> Option<&str> {
    if stream.starts_with('$') {
        return None;
    }
    stream.split_once('-').map(|(category, _)| category).filter(|category| !category.is_empty())
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extent {
    /// The number of its next event.
    pub(crate) next: u64,
    /// Where its tombstone stands.
    pub(crate) tombstone: Option<u64>,
}

/// The index of a log.
#[derive(Debug)]
pub(crate) struct Index {
    table: Table,
    tails: RwLock<Tails>,
    /// Held by whoever writes to the table.
    flushing: Mutex<()>,
    /// How often the table was written to.
    flushes: AtomicU64,
    /// Why the last flush failed; signalled when there is room again.
    room: (Mutex<Option<String>>, Condvar),
}

#[derive(Debug, Default)]
struct Tails {
    active: Tail,
    /// What is being written to the table.
    frozen: Option<Arc<Tail>>,
}

impl Index {
    /// Opens the index, or makes an empty one where there is none that can be used.
    pub(crate) fn open(disk: &Arc<dyn Disk>) -> Result<Self, IndexError> {
        let table = Table::open(disk)?;
        let (tails, flushing) = (RwLock::default(), Mutex::default());
        Ok(Self { table, tails, flushing, flushes: AtomicU64::new(0), room: Default::default() })
    }

    /// The checkpoint of an index that may be there. Where it cannot be read, nothing is known.
    pub(crate) fn known_checkpoint(disk: &dyn Disk) -> Option<u64> {
        Table::checkpoint_of_existing(disk)
    }

    /// Removes the index of a log that nobody has open.
    pub(crate) fn remove(disk: &dyn Disk) -> io::Result<()> {
        Table::remove(disk)
    }

    /// Closes the table, so that another process may open it. Everything fails from then on that is
    /// not in memory.
    pub(crate) fn close(&self) {
        self.table.close();
    }

    /// Up to where in the log the table is complete. The log had been synced up to there.
    pub(crate) fn checkpoint(&self) -> Result<u64, IndexError> {
        self.table.checkpoint()
    }

    /// Brings an index that was just opened up to date with its log.
    pub(crate) fn catch_up(&self, log: &Log, checkpoint: u64) -> Result<(), ReadError> {
        let mut cursor = Cursor::in_order(log, 128 << 10);
        cursor.seek(checkpoint)?;
        let (mut events, mut end) = (Vec::new(), checkpoint);
        loop {
            let event = cursor.next()?;
            let is_last = event.is_none();
            end = event.as_ref().map_or(end, |event| event.head().end());
            events.extend(event);
            if is_last || events.len() >= CATCH_UP {
                self.insert(events.drain(..), end);
            }
            if self.wants_flush() {
                self.flush()?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Notes events that have been synced. `end` is where the log ends with them.
    pub(crate) fn insert(&self, events: impl Iterator<Item = RecordedEvent>, end: u64) {
        let mut tails = self.tails.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            tails.active.insert(&event);
        }
        tails.active.end = end;
    }

    /// Waits while the memory is full.
    ///
    /// # Errors
    /// When that takes too long, with the reason for it.
    pub(crate) fn wait_for_room(&self) -> Result<(), String> {
        let (lock, changed) = &self.room;
        let failure = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Where the table cannot be written, waiting helps nobody.
        let is_full = |failure: &mut Option<String>| failure.is_none() && self.held() >= TAIL_MAX;
        let waited = changed.wait_timeout_while(failure, ROOM_LIMIT, is_full);
        let (failure, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.held() < TAIL_MAX {
            return Ok(());
        }
        let reason = failure.as_deref().unwrap_or("the disk is too slow");
        Err(format!("the index cannot be brought up to date: {reason}"))
    }

    /// Whether it is time to write to the table.
    pub(crate) fn wants_flush(&self) -> bool {
        self.held() >= FLUSH_AT
    }

    fn held(&self) -> usize {
        self.tails.read().unwrap_or_else(PoisonError::into_inner).active.bytes
    }

    /// Writes to the table what memory holds.
    pub(crate) fn flush(&self) -> Result<(), IndexError> {
        let _alone = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        // What an earlier flush failed to write comes first.
        let left_over = self.tails.read().unwrap_or_else(PoisonError::into_inner).frozen.clone();
        if let Some(left_over) = left_over {
            self.write(&left_over)?;
        }
        let frozen = {
            let mut tails = self.tails.write().unwrap_or_else(PoisonError::into_inner);
            if tails.active.bytes == 0 {
                return Ok(());
            }
            let frozen = Arc::new(std::mem::take(&mut tails.active));
            tails.frozen = Some(Arc::clone(&frozen));
            frozen
        };
        self.room.1.notify_all();
        self.write(&frozen)
    }

    /// Writes what is frozen. Readers find it in memory until it is in the table.
    fn write(&self, frozen: &Tail) -> Result<(), IndexError> {
        let written = self.table.write(frozen);
        if written.is_err() {
            // The database takes nothing more after an error of the disk, which may be over.
            self.table.reopen();
        }
        self.tell_room(written.as_ref().err().map(ToString::to_string));
        written?;
        self.flushes.fetch_add(1, Ordering::Release);
        self.tails.write().unwrap_or_else(PoisonError::into_inner).frozen = None;
        Ok(())
    }

    fn tell_room(&self, failure: Option<String>) {
        let (lock, changed) = &self.room;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        changed.notify_all();
    }

    /// How far a stream is.
    pub(crate) fn extent(&self, key: Key<'_>) -> Result<Extent, IndexError> {
        match self.recent_extent(key) {
            Extent { next: 0, tombstone: None } => self.table.extent(key),
            // A stream has one tombstone, and then nothing comes.
            Extent { next: 0, tombstone } => Ok(Extent { tombstone, ..self.table.extent(key)? }),
            recent => Ok(recent),
        }
    }

    fn recent_extent(&self, key: Key<'_>) -> Extent {
        let tails = self.tails.read().unwrap_or_else(PoisonError::into_inner);
        let frozen = tails.frozen.as_ref().map(|tail| tail.extent(key));
        tails.active.extent(key).or(frozen.unwrap_or_default())
    }

    /// How far a stream is, if that may have changed: what memory says, or the table where it was
    /// written since `flushes`. So many who wait for a stream cost little.
    pub(crate) fn changed_extent(
        &self,
        key: Key<'_>,
        flushes: &mut u64,
    ) -> Result<Option<Extent>, IndexError> {
        // Memory first: what leaves it was counted before.
        let recent = self.recent_extent(key);
        let done = self.flushes.load(Ordering::Acquire);
        if recent == Extent::default() && std::mem::replace(flushes, done) != done {
            return self.extent(key).map(Some);
        }
        Ok((recent != Extent::default()).then_some(recent))
    }

    /// Where events stand whose numbers are `from` or more: at most `count`, in order, without those
    /// that are gone.
    pub(crate) fn positions(
        &self,
        key: Key<'_>,
        from: u64,
        count: usize,
    ) -> Result<Vec<(u64, u64)>, IndexError> {
        // Memory first: what is written to the table meanwhile is then found there, too.
        let recent = {
            let tails = self.tails.read().unwrap_or_else(PoisonError::into_inner);
            let mut recent = Vec::new();
            if let Some(frozen) = &tails.frozen {
                frozen.positions(key, from, count, &mut recent);
            }
            tails.active.positions(key, from, count, &mut recent);
            recent
        };
        let upto = recent.first().map_or(u64::MAX, |(number, _)| *number);
        let mut found = Vec::new();
        if upto > from {
            self.table.positions(key, from, upto, count, &mut found)?;
        }
        let room = count.saturating_sub(found.len());
        found.extend(recent.into_iter().take(room));
        Ok(found)
    }

    /// Where an event with this id in this stream may stand. Whoever asks has to look.
    pub(crate) fn by_id(&self, stream: &str, id: Uuid) -> Result<Option<u64>, IndexError> {
        let id = id_key(stream, id);
        {
            let tails = self.tails.read().unwrap_or_else(PoisonError::into_inner);
            let frozen = || tails.frozen.as_ref().and_then(|tail| tail.by_id(id));
            if let Some(position) = tails.active.by_id(id).or_else(frozen) {
                return Ok(Some(position));
            }
        }
        self.table.by_id(id)
    }
}

impl Extent {
    fn or(self, other: Self) -> Self {
        let next = if self.next == 0 { other.next } else { self.next };
        Self { next, tombstone: self.tombstone.or(other.tombstone) }
    }
}

/// The key of an event's id: FNV-1a of both, which must be the same for ever. Two ids with one key
/// are told apart by their records.
fn id_key(stream: &str, id: Uuid) -> u64 {
    let bytes = id.as_bytes().iter().chain(stream.as_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// The numbers of an event in the streams that it belongs to.
fn places(event: &RecordedEvent) -> impl Iterator<Item = (Key<'_>, u64)> {
    let head = event.head();
    let stream = Some((Key::Stream(event.stream()), head.revision));
    let category = category_of(event.stream())
        .filter(|_| head.category_number != NO_NUMBER)
        .map(|category| (Key::Category(category), head.category_number));
    let event_type = (head.type_number != NO_NUMBER)
        .then(|| (Key::EventType(event.event_type()), head.type_number));
    [stream, category, event_type].into_iter().flatten()
}
