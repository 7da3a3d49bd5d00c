//! Reading the records of a segment one after the other, through a window of bytes.

use super::record::{self, Found};
use super::segment::Segment;
use crate::event::RecordedEvent;
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// How much is read ahead: a page of a reader, and what begins in it.
pub(crate) const WINDOW: usize = 272 << 10;

/// What a scan finds.
#[derive(Debug)]
pub(crate) enum Scanned {
    /// A whole record, and where it stands in the file.
    Record(u64, RecordedEvent),
    /// The end.
    End,
    /// No record where there should be one.
    Damage(u64),
}

/// Goes through a segment from some place on.
#[derive(Debug)]
pub(crate) struct Scan {
    segment: Arc<Segment>,
    /// Where the next record begins, and where nothing follows any more.
    offset: u64,
    end: u64,
    window: Bytes,
    /// Where in the file the window begins.
    window_at: u64,
    read_ahead: usize,
}

impl Scan {
    pub(crate) fn new(segment: Arc<Segment>, offset: u64, end: u64) -> Self {
        let window = Bytes::new();
        Self { segment, offset, end, window, window_at: 0, read_ahead: WINDOW }
    }

    /// The same for a reader that wants few records.
    pub(crate) fn with_window(mut self, bytes: usize) -> Self {
        self.read_ahead = bytes.clamp(4 << 10, WINDOW);
        self
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to another place. What was read ahead stays.
    pub(crate) fn seek(&mut self, offset: u64, end: u64) {
        self.offset = offset;
        self.end = end;
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> io::Result<Scanned> {
        if self.offset >= self.end {
            return Ok(Scanned::End);
        }
        loop {
            let in_window = self.offset.wrapping_sub(self.window_at) as usize;
            let bytes = if self.offset >= self.window_at && in_window <= self.window.len() {
                self.window.slice(in_window..)
            } else {
                Bytes::new()
            };
            match record::find(&bytes, self.segment.salt) {
                Found::Record(head) => {
                    let length = head.record_len();
                    if self.offset + length as u64 > self.end {
                        return Ok(Scanned::Damage(self.offset));
                    }
                    let event = RecordedEvent::of_record(head, bytes.slice(..length));
                    let offset = self.offset;
                    self.offset += length as u64;
                    return Ok(Scanned::Record(offset, event));
                }
                Found::Damage => return Ok(Scanned::Damage(self.offset)),
                Found::More(length) => {
                    let left = self.end - self.offset;
                    if length as u64 > left {
                        return Ok(Scanned::Damage(self.offset));
                    }
                    let wanted = length.max(self.read_ahead).min(left as usize);
                    self.window = self.segment.read(self.offset, wanted)?;
                    self.window_at = self.offset;
                    if self.window.len() < length {
                        return Ok(Scanned::Damage(self.offset));
                    }
                }
            }
        }
    }
}
