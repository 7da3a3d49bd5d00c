//! The bytes of an event in a segment.
//!
//! A record is a head of fixed size, the stream's name, the type, metadata and data, and last its
//! own length again, so that a log can be read from its end. Numbers are little-endian. The
//! checksum covers everything between itself and that last length, and begins with the salt of the
//! log, which no client knows: no data of an event can look like a record.

use crate::event::RecordedEvent;
use bytes::{BufMut as _, Bytes, BytesMut};
use std::ops::Range;
use uuid::Uuid;

/// The size of the fixed part.
pub(crate) const HEAD: usize = 88;
/// The length that is repeated at the end.
pub(crate) const TRAILER: usize = 4;
/// The smallest record.
pub(crate) const SMALLEST: usize = HEAD + TRAILER;
/// The longest name of a stream, and of a type.
pub(crate) const LONGEST_NAME: usize = 4_096;
/// The largest record: no reader allocates more because of a damaged length.
pub(crate) const LARGEST: usize = 80 << 20;
/// A record that no projection numbers.
pub(crate) const NO_NUMBER: u64 = u64::MAX;

const JSON: u8 = 1;
/// The first record of its append. An append is there as a whole, or not at all.
const FIRST: u8 = 2;
/// The last record of its append.
const LAST: u8 = 4;
const KNOWN_FLAGS: u8 = JSON | FIRST | LAST;

/// The fixed part of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    pub(crate) flags: u8,
    /// Where the record stands in the whole log.
    pub(crate) position: u64,
    /// Up to where the log was synced before this record was written. A whole record is thus a
    /// witness that everything before this position had been acknowledged.
    pub(crate) durable: u64,
    pub(crate) revision: u64,
    /// Its number in the stream of its category, and in that of its type.
    pub(crate) category_number: u64,
    pub(crate) type_number: u64,
    pub(crate) created: u64,
    pub(crate) id: Uuid,
    stream_len: u16,
    type_len: u16,
    metadata_len: u32,
    data_len: u32,
}

/// What makes up a record.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) is_json: bool,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    pub(crate) position: u64,
    pub(crate) durable: u64,
    pub(crate) revision: u64,
    pub(crate) category_number: u64,
    pub(crate) type_number: u64,
    pub(crate) created: u64,
    pub(crate) id: Uuid,
    pub(crate) stream: &'a str,
    pub(crate) event_type: &'a str,
    pub(crate) metadata: &'a [u8],
    pub(crate) data: &'a [u8],
}

impl Parts<'_> {
    /// How many bytes the record takes.
    pub(crate) fn len(&self) -> usize {
        SMALLEST + self.stream.len() + self.event_type.len() + self.metadata.len() + self.data.len()
    }

    /// Writes the record. Whoever calls has seen to the limits of names and content.
    pub(crate) fn write(&self, salt: u32, to: &mut BytesMut) {
        let length = self.len();
        let start = to.len();
        to.reserve(length);
        to.put_u32_le(length as u32);
        to.put_u32_le(0);
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        to.put_u8(flag(self.is_json, JSON) | flag(self.is_first, FIRST) | flag(self.is_last, LAST));
        to.put_u8(0);
        to.put_u16_le(self.stream.len() as u16);
        to.put_u16_le(self.event_type.len() as u16);
        to.put_u16_le(0);
        to.put_u64_le(self.position);
        to.put_u64_le(self.durable);
        to.put_u64_le(self.revision);
        to.put_u64_le(self.category_number);
        to.put_u64_le(self.type_number);
        to.put_u64_le(self.created);
        to.put_slice(self.id.as_bytes());
        to.put_u32_le(self.metadata.len() as u32);
        to.put_u32_le(self.data.len() as u32);
        to.put_slice(self.stream.as_bytes());
        to.put_slice(self.event_type.as_bytes());
        to.put_slice(self.metadata);
        to.put_slice(self.data);
        let checksum = crc32c::crc32c_append(salt, &to[start + 8..]);
        to[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        to.put_u32_le(length as u32);
    }

    /// The same as an event, for one that the log computes.
    pub(crate) fn event(&self) -> RecordedEvent {
        let mut record = BytesMut::with_capacity(self.len());
        self.write(0, &mut record);
        let head = Head::read(&record);
        RecordedEvent::of_record(head, record.freeze())
    }
}

impl Head {
    pub(crate) fn is_json(&self) -> bool {
        self.flags & JSON != 0
    }

    pub(crate) fn is_first(&self) -> bool {
        self.flags & FIRST != 0
    }

    pub(crate) fn is_last(&self) -> bool {
        self.flags & LAST != 0
    }

    pub(crate) fn stream(&self) -> Range<usize> {
        HEAD..HEAD + usize::from(self.stream_len)
    }

    pub(crate) fn event_type(&self) -> Range<usize> {
        let start = self.stream().end;
        start..start + usize::from(self.type_len)
    }

    pub(crate) fn metadata(&self) -> Range<usize> {
        let start = self.event_type().end;
        start..start + self.metadata_len as usize
    }

    pub(crate) fn data(&self) -> Range<usize> {
        let start = self.metadata().end;
        start..start + self.data_len as usize
    }

    /// The length of the whole record.
    pub(crate) fn record_len(&self) -> usize {
        self.data().end + TRAILER
    }

    /// Where the next record would stand, had none been taken out.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.record_len() as u64
    }

    /// Reads the fixed part of at least [`HEAD`] bytes.
    fn read(bytes: &[u8]) -> Self {
        Self {
            flags: bytes[8],
            stream_len: u16_at(bytes, 10),
            type_len: u16_at(bytes, 12),
            position: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            revision: u64_at(bytes, 32),
            category_number: u64_at(bytes, 40),
            type_number: u64_at(bytes, 48),
            created: u64_at(bytes, 56),
            id: Uuid::from_bytes(array_at(bytes, 64)),
            metadata_len: u32_at(bytes, 80),
            data_len: u32_at(bytes, 84),
        }
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    /// A whole record.
    Record(Head),
    /// The beginning of a record of this length, if these bytes are one at all.
    More(usize),
    /// No record.
    Damage,
}

/// Looks for a record at the beginning of `bytes`.
pub(crate) fn find(bytes: &[u8], salt: u32) -> Found {
    if bytes.len() < 4 {
        return Found::More(SMALLEST);
    }
    let length = u32_at(bytes, 0) as usize;
    if !(SMALLEST..=LARGEST).contains(&length) {
        return Found::Damage;
    }
    if bytes.len() < length {
        return Found::More(length);
    }
    let head = Head::read(bytes);
    let is_whole = head.record_len() == length
        && head.flags & !KNOWN_FLAGS == 0
        && u32_at(bytes, length - TRAILER) as usize == length
        && u32_at(bytes, 4) == crc32c::crc32c_append(salt, &bytes[8..length - TRAILER])
        && std::str::from_utf8(&bytes[head.stream()]).is_ok()
        && std::str::from_utf8(&bytes[head.event_type()]).is_ok();
    if is_whole { Found::Record(head) } else { Found::Damage }
}

/// The record at the beginning of `bytes`, if it is whole.
pub(crate) fn take(bytes: &Bytes, salt: u32) -> Option<RecordedEvent> {
    match find(bytes, salt) {
        Found::Record(head) => {
            Some(RecordedEvent::of_record(head, bytes.slice(..head.record_len())))
        }
        Found::More(_) | Found::Damage => None,
    }
}

/// Marks a record that stays, when others of its append are taken out, as an append of its own.
pub(crate) fn make_whole_append(record: &mut [u8], salt: u32) {
    record[8] |= FIRST | LAST;
    let end = record.len() - TRAILER;
    let checksum = crc32c::crc32c_append(salt, &record[8..end]);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// A text of a record that has been checked.
pub(crate) fn text(record: &Bytes, range: Range<usize>) -> &str {
    std::str::from_utf8(&record[range]).unwrap_or_default()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
