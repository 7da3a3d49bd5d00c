//! A reader's place in the log.

use super::Log;
use super::record::{LARGEST, SMALLEST, TRAILER, u32_at};
use super::scan::{Scan, Scanned};
use super::segment::{Form, HEADER, Segment};
use crate::event::RecordedEvent;
use crate::expected::ReadError;
use std::sync::Arc;

/// Reads from a place on, forwards or backwards, no further than what is on disk.
#[derive(Debug)]
pub(crate) struct Cursor {
    segments: Arc<Vec<Arc<Segment>>>,
    end: u64,
    scan: Option<Scan>,
    window: usize,
    /// The position that was given last by [`Cursor::before`], and where its record begins.
    behind: Option<(u64, usize, u64)>,
}

impl Cursor {
    /// A cursor for what is found through the index. `window` is how many bytes it reads ahead.
    pub(crate) fn new(log: &Log, window: usize) -> Self {
        // The end first: a segment that is added meanwhile lies behind it.
        let end = log.synced();
        Self { segments: log.segments(), end, scan: None, window, behind: None }
    }

    /// A cursor that goes from one event to the next, and passes none that the index lacks.
    pub(crate) fn in_order(log: &Log, window: usize) -> Self {
        let end = log.end();
        Self { segments: log.segments(), end, scan: None, window, behind: None }
    }

    /// Where the log ended when the cursor was made.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The record at exactly this position; `None` where it was taken out.
    pub(crate) fn at(&mut self, position: u64) -> Result<Option<RecordedEvent>, ReadError> {
        let Some(index) = self.segment_of(position) else { return Ok(None) };
        let segment = Arc::clone(&self.segments[index]);
        let offset = segment.offset_near(position)?;
        let end = segment.records_end(self.end_of(index));
        match &mut self.scan {
            // What was read ahead may hold it.
            Some(scan) if Arc::ptr_eq(scan.segment(), &segment) => scan.seek(offset, end),
            scan => *scan = Some(Scan::new(segment, offset, end).with_window(self.window)),
        }
        let Some(scan) = &mut self.scan else { return Ok(None) };
        loop {
            match scan.next()? {
                Scanned::Record(_, event) if event.position() == position => {
                    return Ok(Some(event));
                }
                Scanned::Record(_, event)
                    if event.position() < position && scan.segment().form != Form::Whole => {}
                Scanned::Record(offset, _) | Scanned::Damage(offset) => {
                    return match scan.segment().form {
                        Form::Whole => Err(scan.segment().damaged(offset)),
                        Form::Compacted { .. } => Ok(None),
                    };
                }
                Scanned::End => return Ok(None),
            }
        }
    }

    /// Goes to the first record at a position or behind it.
    pub(crate) fn seek(&mut self, position: u64) -> Result<(), ReadError> {
        let position = position.max(HEADER as u64);
        self.scan = None;
        let Some(index) = self.segment_of(position) else { return Ok(()) };
        let segment = Arc::clone(&self.segments[index]);
        let end = segment.records_end(self.end_of(index));
        let near = segment.offset_near(position)?;
        let mut scan = self.log_scan(segment, near, end);
        let is_record = match scan.next()? {
            Scanned::Record(_, event) => event.position() <= position,
            Scanned::End => true,
            Scanned::Damage(_) => false,
        };
        // A position that the log never gave out: from the beginning of the segment it is found.
        let from = if is_record { near } else { HEADER as u64 };
        scan.seek(from, end);
        loop {
            let before = scan.offset();
            match scan.next()? {
                Scanned::Record(_, event) if event.position() < position => {}
                Scanned::Record(..) | Scanned::End => {
                    scan.seek(before, end);
                    self.scan = Some(scan);
                    return Ok(());
                }
                Scanned::Damage(offset) => return Err(scan.segment().damaged(offset)),
            }
        }
    }

    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<RecordedEvent>, ReadError> {
        loop {
            let Some(scan) = &mut self.scan else { return Ok(None) };
            match scan.next()? {
                Scanned::Record(_, event) => return Ok(Some(event)),
                Scanned::Damage(offset) => return Err(scan.segment().damaged(offset)),
                Scanned::End => {
                    let number = scan.segment().number;
                    let next = self.segments.iter().position(|one| one.number == number + 1);
                    let Some(next) = next.filter(|index| self.segments[*index].base < self.end)
                    else {
                        return Ok(None);
                    };
                    let segment = Arc::clone(&self.segments[next]);
                    let end = segment.records_end(self.end_of(next));
                    self.scan = Some(self.log_scan(segment, HEADER as u64, end));
                }
            }
        }
    }

    /// The last record before a position.
    pub(crate) fn before(&mut self, position: u64) -> Result<Option<RecordedEvent>, ReadError> {
        let known = self.behind.filter(|(given, ..)| *given == position);
        let (mut index, mut offset) = match known {
            Some((_, index, offset)) => (index, offset),
            None => match self.end_before(position.min(self.end))? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        loop {
            if offset > HEADER as u64 {
                let (begin, event) = self.ending_at(index, offset)?;
                self.behind = Some((event.position(), index, begin));
                return Ok(Some(event));
            }
            let Some(before) = index.checked_sub(1) else { return Ok(None) };
            index = before;
            offset = self.segments[index].records_end(self.end_of(index));
        }
    }

    /// Where the records before a position end: in which segment, and where in its file.
    fn end_before(&mut self, position: u64) -> Result<Option<(usize, u64)>, ReadError> {
        let Some(index) = self.segment_of(position.saturating_sub(1)) else { return Ok(None) };
        let segment = Arc::clone(&self.segments[index]);
        let offset = match segment.form {
            Form::Whole => position - segment.base,
            // Records follow each other in the file, whatever positions were taken out.
            Form::Compacted { .. } => {
                self.seek(position)?;
                match &self.scan {
                    Some(scan) if scan.segment().number == segment.number => scan.offset(),
                    _ => segment.records_end(self.end_of(index)),
                }
            }
        };
        Ok(Some((index, offset)))
    }

    /// The record that ends at a place in the file, and where it begins.
    fn ending_at(&mut self, index: usize, offset: u64) -> Result<(u64, RecordedEvent), ReadError> {
        let segment = &self.segments[index];
        let damaged = || segment.damaged(offset);
        let trailer = segment.read(offset - TRAILER as u64, TRAILER)?;
        if trailer.len() < TRAILER {
            return Err(damaged());
        }
        let length = u32_at(&trailer, 0) as usize;
        if !(SMALLEST..=LARGEST).contains(&length) || offset < (length + HEADER) as u64 {
            // A position in the midst of a record, which the log never gave out, or damage.
            return self.containing(index, offset);
        }
        let begin = offset - length as u64;
        match segment.record_at(begin) {
            Ok(event) if event.head().record_len() == length => Ok((begin, event)),
            Ok(_) | Err(_) => self.containing(index, offset),
        }
    }

    /// The last record that begins before a place in the file that is no record's end.
    fn containing(&mut self, index: usize, offset: u64) -> Result<(u64, RecordedEvent), ReadError> {
        let segment = Arc::clone(&self.segments[index]);
        let end = segment.records_end(self.end_of(index));
        let mut scan = Scan::new(segment, HEADER as u64, end);
        let mut last = None;
        loop {
            match scan.next()? {
                Scanned::Record(at, event) if at < offset => last = Some((at, event)),
                Scanned::Record(..) | Scanned::End => {
                    return last.ok_or_else(|| scan.segment().damaged(offset));
                }
                Scanned::Damage(at) => return Err(scan.segment().damaged(at)),
            }
        }
    }

    fn log_scan(&self, segment: Arc<Segment>, offset: u64, end: u64) -> Scan {
        Scan::new(segment, offset, end).with_window(self.window)
    }

    fn segment_of(&self, position: u64) -> Option<usize> {
        if position >= self.end {
            return None;
        }
        self.segments.partition_point(|segment| segment.base <= position).checked_sub(1)
    }

    /// Where a segment's positions end.
    fn end_of(&self, index: usize) -> u64 {
        self.segments.get(index + 1).map_or(self.end, |next| next.base.min(self.end))
    }
}
