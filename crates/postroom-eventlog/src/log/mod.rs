//! The durable log: records in segments, one after the other, each at a position that never changes.

mod cursor;
pub(crate) mod record;
pub(crate) mod recovery;
mod scan;
pub(crate) mod segment;

pub(crate) use cursor::Cursor;
pub(crate) use scan::{Scan, Scanned};

use crate::disk::Disk;
use segment::Segment;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

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
}

impl Log {
    pub(crate) fn new(disk: Arc<dyn Disk>, segments: Vec<Arc<Segment>>, end: u64) -> Self {
        let segments = RwLock::new(Arc::new(segments));
        Self { disk, segments, synced: AtomicU64::new(end), end: watch::Sender::new(end) }
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
    pub(crate) fn grow(&self, end: u64) -> io::Result<Arc<Segment>> {
        let number = self.segments().last().map_or(0, |last| last.number + 1);
        let added = Arc::new(Segment::create(&*self.disk, number, end)?);
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
