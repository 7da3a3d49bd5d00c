//! The durable log: records in segments, one after the other, each at a position that never changes.

pub(crate) mod acknowledged;
mod cursor;
pub(crate) mod record;
pub(crate) mod recovery;
mod scan;
pub(crate) mod segment;

pub(crate) use cursor::Cursor;
pub(crate) use scan::{Scan, Scanned, WINDOW};

use crate::disk::Disk;
use segment::Segment;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use uuid::Uuid;

/// A salt for the records of a new log.
pub(crate) fn new_salt() -> u32 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    (high >> 32) as u32 ^ low as u32
}

/// Why there is no new segment.
#[derive(Debug)]
pub(crate) enum GrowError {
    /// Everything is as it was.
    Failed(io::Error),
    /// Nobody knows whether a start would find it, so nothing may be appended to the one before.
    Unclear(io::Error),
}

/// The segments of a log, and up to where they are on disk. Readers see nothing beyond.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    /// Up to where everything is on disk. Set before the index knows of it, so that what is found
    /// through the index can be read.
    synced: AtomicU64,
    /// The same for those who read one event after the other. Set after the index knows of it, so
    /// that what they read can be found through the index.
    end: watch::Sender<u64>,
    is_closed: watch::Sender<bool>,
}

impl Log {
    pub(crate) fn new(disk: Arc<dyn Disk>, segments: Vec<Arc<Segment>>, end: u64) -> Self {
        let segments = RwLock::new(Arc::new(segments));
        let (synced, end) = (AtomicU64::new(end), watch::Sender::new(end));
        Self { disk, segments, synced, end, is_closed: watch::Sender::new(false) }
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Up to where records may be read that were found through the index.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Where the next record will stand. Everything before it is on disk, and in the index.
    pub(crate) fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// Changes whenever something was written.
    pub(crate) fn watch_end(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// Tells those who follow the log that nothing comes any more.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Changes when the log is closed.
    pub(crate) fn watch_closed(&self) -> watch::Receiver<bool> {
        self.is_closed.subscribe()
    }

    /// Lets those read what has been synced who find it through the index.
    pub(crate) fn advance(&self, end: u64) {
        self.synced.store(end, Ordering::Release);
    }

    /// Lets everybody read what has been synced, and is in the index.
    pub(crate) fn publish(&self, end: u64) {
        self.advance(end);
        self.end.send_replace(end);
    }

    /// The segments as they are now.
    pub(crate) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.segments.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an empty segment behind the last one.
    pub(crate) fn grow(&self, end: u64) -> Result<Arc<Segment>, GrowError> {
        let last = self.segments().last().cloned();
        let (number, salt) =
            last.as_ref().map_or_else(|| (0, new_salt()), |last| (last.number + 1, last.salt));
        if let Some(last) = &last {
            // A write that failed was cut, and nothing has been synced since.
            last.file.sync().map_err(GrowError::Unclear)?;
        }
        let added = Segment::prepare(&*self.disk, number, end, salt).map_err(GrowError::Failed)?;
        added.reveal(&*self.disk).map_err(GrowError::Unclear)?;
        let added = Arc::new(added);
        {
            let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
            Arc::make_mut(&mut segments).push(Arc::clone(&added));
        }
        // The next record comes behind its header.
        self.publish(end + segment::HEADER as u64);
        Ok(added)
    }

    /// Puts a segment with fewer records in the place of one. Readers that are at work keep the old
    /// file until they are done.
    pub(crate) fn replace(&self, compacted: Segment) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        for segment in Arc::make_mut(&mut segments) {
            if segment.number == compacted.number {
                *segment = Arc::new(compacted);
                return;
            }
        }
    }
}
