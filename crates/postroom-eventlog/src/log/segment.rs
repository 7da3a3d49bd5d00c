//! A file of the log.
//!
//! Its header says where in the log it begins. Records follow. A segment that was scavenged, or
//! repaired, has fewer records than it had, each still at its position: a table at its end leads
//! from positions to places in the file.

use super::record::{self, Found, u32_at, u64_at};
use crate::disk::{Disk, DiskFile};
use crate::event::RecordedEvent;
use crate::expected::ReadError;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::io;
use std::sync::Arc;

/// Where the first record stands.
pub(crate) const HEADER: usize = 64;
const MAGIC: &[u8; 8] = b"PRlog\r\n\x01";
const VERSION: u32 = 1;
const COMPACTED: u32 = 1;
/// The table has an entry for every so many bytes of records.
const TABLE_STEP: u64 = 16 << 10;
const TABLE_ENTRY: u64 = 16;
/// What is read at once where the length of a record is not known yet.
const GUESS: usize = 4 << 10;

/// A segment that is open.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// The position of its beginning. Its first record stands at `base + HEADER`.
    pub(crate) base: u64,
    /// The salt of the log, see [`record`].
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) form: Form,
}

/// How positions lead to places in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// As it was written: a record stands at its position less the base.
    Whole,
    /// Some records were taken out.
    Compacted {
        /// Where the next segment begins.
        end: u64,
        /// Where the records end and the table begins.
        records_end: u64,
        /// How many entries it has.
        entries: u64,
    },
}

/// The file's name.
pub(crate) fn name(number: u64) -> String {
    format!("{number:08}.log")
}

/// The name while it is being made.
pub(crate) fn unfinished_name(number: u64) -> String {
    format!("{number:08}.log.new")
}

/// The number in a file's name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

/// Whether a file was being made when something went wrong.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(".log.new")
}

impl Segment {
    /// Makes an empty segment, which is not there before [`Segment::reveal`].
    pub(crate) fn prepare(disk: &dyn Disk, number: u64, base: u64, salt: u32) -> io::Result<Self> {
        let file = disk.create(&unfinished_name(number))?;
        file.write_at(0, &header(number, base, salt, Form::Whole))?;
        file.sync()?;
        Ok(Self { number, base, salt, file, form: Form::Whole })
    }

    /// Gives a segment that was prepared its place, for good once this returns.
    pub(crate) fn reveal(&self, disk: &dyn Disk) -> io::Result<()> {
        disk.rename(&unfinished_name(self.number), &name(self.number))?;
        disk.sync()
    }

    /// Opens a segment, and reads its header.
    pub(crate) fn open(disk: &dyn Disk, number: u64) -> Result<Self, SegmentError> {
        let file = disk.open(&name(number))?;
        let mut header = [0; HEADER];
        let read = file.read_at(0, &mut header)?;
        let sum = u32_at(&header, HEADER - 4);
        if read < HEADER || &header[..8] != MAGIC || crc32c::crc32c(&header[..HEADER - 4]) != sum {
            return Err(SegmentError::NoSegment);
        }
        if u32_at(&header, 8) != VERSION {
            return Err(SegmentError::OtherVersion(u32_at(&header, 8)));
        }
        if u64_at(&header, 16) != number {
            return Err(SegmentError::NoSegment);
        }
        let form = if u32_at(&header, 12) & COMPACTED == 0 {
            Form::Whole
        } else {
            Form::Compacted {
                end: u64_at(&header, 32),
                records_end: u64_at(&header, 40),
                entries: u32_at(&header, 48).into(),
            }
        };
        let (base, salt) = (u64_at(&header, 24), u32_at(&header, SALT));
        Ok(Self { number, base, salt, file, form })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> String {
        name(self.number)
    }

    /// Reads some bytes; fewer only at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = BytesMut::zeroed(length);
        let read = self.file.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes.freeze())
    }

    /// The record at a place in the file, which must be one.
    pub(crate) fn record_at(&self, offset: u64) -> Result<RecordedEvent, ReadError> {
        let mut bytes = self.read(offset, GUESS)?;
        if let Found::More(length) = record::find(&bytes, self.salt) {
            bytes = self.read(offset, length)?;
        }
        record::take(&bytes, self.salt).ok_or_else(|| self.damaged(offset))
    }

    /// An error that names a place in this file.
    pub(crate) fn damaged(&self, offset: u64) -> ReadError {
        ReadError::Damaged { segment: self.name(), offset }
    }

    /// Where a reader begins that looks for a position: at the record itself, or before it.
    pub(crate) fn offset_near(&self, position: u64) -> Result<u64, ReadError> {
        match self.form {
            Form::Whole => Ok((position - self.base).max(HEADER as u64)),
            Form::Compacted { records_end, entries, .. } => {
                let (mut low, mut high) = (0, entries);
                // The last entry that is not behind the position.
                let mut offset = HEADER as u64;
                while low < high {
                    let middle = low.midpoint(high);
                    let entry =
                        self.read(records_end + middle * TABLE_ENTRY, TABLE_ENTRY as usize)?;
                    if entry.len() < TABLE_ENTRY as usize {
                        return Err(self.damaged(records_end));
                    }
                    if u64_at(&entry, 0) <= position {
                        offset = u64_at(&entry, 8);
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                Ok(offset)
            }
        }
    }

    /// Where its records end in the file, if `end` is where the log ends.
    pub(crate) fn records_end(&self, end: u64) -> u64 {
        match self.form {
            Form::Whole => end - self.base,
            Form::Compacted { records_end, .. } => records_end,
        }
    }
}

/// Why a file cannot be opened as a segment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SegmentError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("its header is damaged")]
    NoSegment,
    #[error("it was written by another version of Postroom (format {0})")]
    OtherVersion(u32),
}

/// Both places where a header has the salt, so that a byte that is wrong does not lose it.
const SALTS: [usize; 2] = [SALT, SALT - 4];
const SALT: usize = 56;

/// What may be the salt of a segment whose header is damaged.
pub(crate) fn salts(file: &dyn DiskFile) -> io::Result<Vec<u32>> {
    let mut header = [0; HEADER];
    file.read_at(0, &mut header)?;
    Ok(SALTS.iter().map(|at| u32_at(&header, *at)).collect())
}

fn header(number: u64, base: u64, salt: u32, form: Form) -> Bytes {
    let (flags, end, records_end, entries) = match form {
        Form::Whole => (0, 0, 0, 0),
        Form::Compacted { end, records_end, entries } => (COMPACTED, end, records_end, entries),
    };
    let mut header = BytesMut::with_capacity(HEADER);
    header.put_slice(MAGIC);
    header.put_u32_le(VERSION);
    header.put_u32_le(flags);
    for value in [number, base, end, records_end] {
        header.put_u64_le(value);
    }
    header.put_u32_le(entries as u32);
    header.put_u32_le(salt);
    header.put_u32_le(salt);
    let sum = crc32c::crc32c(&header);
    header.put_u32_le(sum);
    header.freeze()
}

/// Writes a segment with fewer records in place of another one.
#[derive(Debug)]
pub(crate) struct Compactor {
    number: u64,
    base: u64,
    salt: u32,
    end: u64,
    file: Arc<dyn DiskFile>,
    offset: u64,
    buffer: BytesMut,
    table: BytesMut,
    next_entry: u64,
}

/// How much is written at once.
const WRITE: usize = 1 << 20;

impl Compactor {
    /// Begins a segment that takes the place of the one with this number, whose records stood
    /// between these positions.
    pub(crate) fn begin(
        disk: &dyn Disk,
        number: u64,
        base: u64,
        end: u64,
        salt: u32,
    ) -> io::Result<Self> {
        let file = disk.create(&unfinished_name(number))?;
        let offset = HEADER as u64;
        let (buffer, table) = (BytesMut::new(), BytesMut::new());
        Ok(Self { number, base, salt, end, file, offset, buffer, table, next_entry: 0 })
    }

    /// Keeps an event, as if it had been appended alone.
    pub(crate) fn keep(&mut self, event: &RecordedEvent) -> io::Result<()> {
        let position = event.position();
        let mut record = event.record().to_vec();
        record::make_whole_append(&mut record, self.salt);
        let offset = self.offset + self.buffer.len() as u64;
        if offset >= self.next_entry {
            self.table.put_u64_le(position);
            self.table.put_u64_le(offset);
            self.next_entry = offset + TABLE_STEP;
        }
        self.buffer.put_slice(&record);
        if self.buffer.len() >= WRITE {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_at(self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Puts the new file in place of the old one, for good once this returns.
    pub(crate) fn finish(mut self, disk: &dyn Disk) -> io::Result<Segment> {
        self.write()?;
        let entries = self.table.len() as u64 / TABLE_ENTRY;
        let form = Form::Compacted { end: self.end, records_end: self.offset, entries };
        let sum = crc32c::crc32c(&self.table);
        self.table.put_u32_le(sum);
        self.file.write_at(self.offset, &self.table)?;
        self.file.write_at(0, &header(self.number, self.base, self.salt, form))?;
        self.file.sync()?;
        let Self { number, base, salt, file, .. } = self;
        let segment = Segment { number, base, salt, file, form };
        segment.reveal(disk)?;
        Ok(segment)
    }
}

/// Whether the table of a segment is as it was written.
pub(crate) fn table_is_whole(segment: &Segment) -> io::Result<bool> {
    let Form::Compacted { records_end, entries, .. } = segment.form else { return Ok(true) };
    let length = usize::try_from(entries * TABLE_ENTRY).unwrap_or(usize::MAX).saturating_add(4);
    let there = segment.file.len()?;
    if records_end.checked_add(length as u64) != Some(there) {
        return Ok(false);
    }
    let table = segment.read(records_end, length)?;
    let (entries, sum) = table.split_at(length - 4);
    Ok(crc32c::crc32c(entries) == u32_at(sum, 0))
}
