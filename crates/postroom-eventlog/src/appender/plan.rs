//! What the requests of one group come to: which records are written, with which numbers.

use super::{Change, Planned, Request, unavailable};
use crate::event::{
    LINK_TYPE, METADATA_TYPE, NewEvent, RecordedEvent, TOMBSTONE_REVISION, TOMBSTONE_TYPE,
};
use crate::expected::{AppendError, Appended, ExpectedRevision};
use crate::index::{Key, category_of};
use crate::log::record::{Found, Head, NO_NUMBER, Parts, find};
use crate::metadata::{METADATA_PREFIX, metadata_stream, now_ticks, truncated};
use crate::reader::Reader;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use uuid::Uuid;

/// How many bytes of names the numbers that are kept may have.
const NAMES_MAX: usize = 8 << 20;

/// Records that are not written yet, and the numbers that come next.
pub(super) struct Plan {
    salt: u32,
    reader: Arc<Reader>,
    buffer: BytesMut,
    records: Vec<(Head, Range<usize>)>,
    /// Where the first record of the group goes, and up to where the log was synced before it.
    start: u64,
    durable: u64,
    created: u64,
    streams: Numbers,
    categories: Numbers,
    types: Numbers,
    /// What the group appends, by stream: revision, id and position.
    pending: HashMap<String, Vec<(u64, Uuid, u64)>>,
    /// Why an append could only be planned in part.
    failed: Option<String>,
}

/// The next numbers of streams. What the group plans is in here, so nothing is dropped in between.
#[derive(Default)]
struct Numbers {
    next: HashMap<Box<str>, u64>,
    bytes: usize,
}

impl Numbers {
    fn trim(&mut self) {
        if self.bytes > NAMES_MAX {
            *self = Self::default();
        }
    }

    fn set(&mut self, name: &str, next: u64) {
        if let Some(known) = self.next.get_mut(name) {
            *known = next;
        } else {
            self.bytes += name.len() + size_of::<u64>() * 4;
            self.next.insert(name.into(), next);
        }
    }
}

/// How a stream stands, with what the group has planned.
#[derive(Clone, Copy)]
struct Standing {
    next: u64,
    /// The first revision that was not truncated.
    first: u64,
    is_deleted: bool,
}

impl Standing {
    fn last(self) -> Option<u64> {
        self.next.checked_sub(1)
    }
}

impl Plan {
    /// A plan for a log, whose times go on from its last event.
    pub(super) fn new(reader: Arc<Reader>, salt: u32) -> io::Result<Self> {
        let last = reader.last().map_err(io::Error::other)?;
        Ok(Self {
            salt,
            reader,
            buffer: BytesMut::new(),
            records: Vec::new(),
            start: 0,
            durable: 0,
            created: last.map_or(0, |event| event.created_ticks()),
            streams: Numbers::default(),
            categories: Numbers::default(),
            types: Numbers::default(),
            pending: HashMap::new(),
            failed: None,
        })
    }

    /// How many bytes are planned.
    pub(super) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Begins a group at the end of the log.
    pub(super) fn begin(&mut self, end: u64) {
        self.start = end;
        self.durable = end;
        // Times never go back, so that what is older than some time is found by halving.
        self.created = self.created.max(now_ticks());
        for numbers in [&mut self.streams, &mut self.categories, &mut self.types] {
            numbers.trim();
        }
    }

    /// The planned bytes and records. The plan is empty then.
    pub(super) fn take(&mut self) -> Planned {
        let bytes = self.buffer.split().freeze();
        let records = self.records.drain(..);
        let events = records
            .map(|(head, range)| RecordedEvent::of_record(head, bytes.slice(range)))
            .collect();
        self.pending.clear();
        Planned { bytes, events, failed: self.failed.take() }
    }

    /// Forgets the numbers of a group that was not written.
    pub(super) fn forget(&mut self) {
        self.streams = Numbers::default();
        self.categories = Numbers::default();
        self.types = Numbers::default();
    }

    /// Whether a request needs to read what the group is about to write: metadata is read from
    /// the log.
    pub(super) fn must_wait_for_group(&self, request: &Request) -> bool {
        match request.change {
            Change::Append(_) => self.pending.contains_key(&metadata_stream(&request.stream)),
            Change::Delete | Change::Tombstone | Change::Roll => true,
        }
    }

    /// Plans what a request changes.
    pub(super) fn add(
        &mut self,
        stream: &str,
        expected: ExpectedRevision,
        change: &Change,
    ) -> Result<Appended, AppendError> {
        let before = self.buffer.len();
        let planned = match change {
            Change::Append(events) => self.append(stream, expected, events),
            Change::Delete => self.delete(stream, expected),
            Change::Tombstone => self.tombstone(stream, expected),
            Change::Roll => Ok(Appended { revision: None, position: None }),
        };
        if let (Err(error), true) = (&planned, self.buffer.len() > before) {
            self.failed = Some(error.to_string());
        }
        planned
    }

    fn append(
        &mut self,
        stream: &str,
        expected: ExpectedRevision,
        events: &[NewEvent],
    ) -> Result<Appended, AppendError> {
        let standing = self.standing(stream)?;
        if let Some(done) = self.done_before(stream, expected, standing, events)? {
            return Ok(done);
        }
        check(expected, standing, || self.has_metadata(stream))?;
        if events.is_empty() {
            return Ok(Appended { revision: standing.last(), position: None });
        }
        // A deleted stream that is written to begins with what is written.
        let revived = standing.is_deleted;
        if revived {
            let name = metadata_stream(stream);
            let metadata = self.metadata_of(&name)?;
            let metadata = truncated(metadata.as_deref(), standing.next);
            let next = self.standing(&name)?.next;
            let event = metadata_event(metadata);
            self.write(&name, next, &event, (true, false))?;
        }
        let last = events.len() - 1;
        let mut position = None;
        for (index, event) in events.iter().enumerate() {
            let ends = (index == 0 && !revived, index == last);
            let revision = standing.next + index as u64;
            position = Some(self.write(stream, revision, event, ends)?);
        }
        Ok(Appended { revision: Some(standing.next + last as u64), position })
    }

    fn delete(
        &mut self,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<Appended, AppendError> {
        let standing = self.standing(stream)?;
        if standing.next == 0 || standing.is_deleted {
            let current = standing.last().filter(|_| !standing.is_deleted);
            return Err(AppendError::WrongExpectedRevision { expected, current });
        }
        check(expected, standing, || Ok(false))?;
        let name = metadata_stream(stream);
        let metadata = truncated(self.metadata_of(&name)?.as_deref(), TOMBSTONE_REVISION);
        let next = self.standing(&name)?.next;
        let position = self.write(&name, next, &metadata_event(metadata), (true, true))?;
        Ok(Appended { revision: standing.last(), position: Some(position) })
    }

    fn tombstone(
        &mut self,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<Appended, AppendError> {
        let standing = self.standing(stream)?;
        check(expected, standing, || Ok(false))?;
        let event = NewEvent {
            id: Uuid::new_v4(),
            event_type: TOMBSTONE_TYPE.to_owned(),
            is_json: true,
            data: Bytes::from_static(b"{}"),
            metadata: Bytes::new(),
        };
        let position = self.write(stream, TOMBSTONE_REVISION, &event, (true, true))?;
        Ok(Appended { revision: Some(TOMBSTONE_REVISION), position: Some(position) })
    }

    /// Plans a record; says where it stands. `ends` is whether it is the first and the last of its
    /// append.
    fn write(
        &mut self,
        stream: &str,
        revision: u64,
        event: &NewEvent,
        ends: (bool, bool),
    ) -> Result<u64, AppendError> {
        let category_number = match category_of(stream) {
            Some(category) => {
                next_number(&self.reader, &mut self.categories, Key::Category(category))?
            }
            None => NO_NUMBER,
        };
        let type_number = if event.event_type == LINK_TYPE {
            NO_NUMBER
        } else {
            next_number(&self.reader, &mut self.types, Key::EventType(&event.event_type))?
        };
        let offset = self.buffer.len();
        let position = self.start + offset as u64;
        Parts {
            is_json: event.is_json,
            is_first: ends.0,
            is_last: ends.1,
            position,
            durable: self.durable,
            revision,
            category_number,
            type_number,
            created: self.created,
            id: event.id,
            stream,
            event_type: &event.event_type,
            metadata: &event.metadata,
            data: &event.data,
        }
        .write(self.salt, &mut self.buffer);
        if let Found::Record(head) = find(&self.buffer[offset..], self.salt) {
            self.records.push((head, offset..self.buffer.len()));
        }
        self.streams.set(stream, revision.saturating_add(1));
        let entry = (revision, event.id, position);
        match self.pending.get_mut(stream) {
            Some(pending) => pending.push(entry),
            None => {
                self.pending.insert(stream.to_owned(), vec![entry]);
            }
        }
        Ok(position)
    }

    fn standing(&mut self, stream: &str) -> Result<Standing, AppendError> {
        let failed = |error: &dyn std::fmt::Display| unavailable("reading the index", error);
        let next = self.next_of(stream)?;
        // A metadata stream ends with its stream.
        if next > TOMBSTONE_REVISION || self.describes_tombstoned(stream)? {
            return Err(AppendError::StreamDeleted);
        }
        if next == 0 || stream.starts_with(METADATA_PREFIX) || !self.has_metadata(stream)? {
            return Ok(Standing { next, first: 0, is_deleted: false });
        }
        let limits = self.reader.limits(stream).map_err(|error| failed(&error))?;
        Ok(Standing { next, first: limits.truncate_before, is_deleted: limits.is_deleted() })
    }

    fn next_of(&mut self, stream: &str) -> Result<u64, AppendError> {
        if let Some(next) = self.streams.next.get(stream) {
            return Ok(*next);
        }
        let extent = self.reader.extent(stream);
        let extent = extent.map_err(|error| unavailable("reading the index", &error))?;
        let next = if extent.tombstone.is_some() { u64::MAX } else { extent.next };
        self.streams.set(stream, next);
        Ok(next)
    }

    fn describes_tombstoned(&mut self, stream: &str) -> Result<bool, AppendError> {
        match stream.strip_prefix(METADATA_PREFIX) {
            Some(described) if !described.is_empty() => {
                Ok(matches!(self.standing(described), Err(AppendError::StreamDeleted)))
            }
            Some(_) | None => Ok(false),
        }
    }

    fn has_metadata(&mut self, stream: &str) -> Result<bool, AppendError> {
        Ok(self.next_of(&metadata_stream(stream))? > 0)
    }

    /// The data of the last event of a metadata stream.
    fn metadata_of(&self, name: &str) -> Result<Option<Bytes>, AppendError> {
        let read = || {
            let Some(last) = self.reader.extent(name)?.next.checked_sub(1) else { return Ok(None) };
            self.reader.event(name, last)
        };
        let event = read().map_err(|error: crate::ReadError| {
            unavailable("reading the metadata of the stream", &error)
        })?;
        Ok(event.map(|event| event.data()))
    }

    /// What an append did that was made before: the same events stand where they would.
    fn done_before(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        standing: Standing,
        events: &[NewEvent],
    ) -> Result<Option<Appended>, AppendError> {
        let Some(first) = events.first() else { return Ok(None) };
        if standing.is_deleted {
            return Ok(None);
        }
        let failed = |error| unavailable("reading what was appended before", &error);
        let is_anywhere =
            matches!(expected, ExpectedRevision::Any | ExpectedRevision::StreamExists);
        let start = match expected {
            ExpectedRevision::Any | ExpectedRevision::StreamExists => {
                let found = self.revision_of(stream, first.id).map_err(failed)?;
                // An append may have one id several times; found is the last of them.
                let again = events.iter().rposition(|event| event.id == first.id).unwrap_or(0);
                match found.and_then(|revision| revision.checked_sub(again as u64)) {
                    Some(revision) if revision >= standing.first => revision,
                    Some(_) | None => return Ok(None),
                }
            }
            ExpectedRevision::NoStream => 0,
            ExpectedRevision::Exact(revision) => revision.saturating_add(1),
        };
        let mut last = None;
        for (index, event) in events.iter().enumerate() {
            let revision = start.saturating_add(index as u64);
            match self.id_at(stream, revision).map_err(failed)? {
                Some((id, position)) if id == event.id => last = Some((revision, position)),
                // The first event is there, and not all that came with it: not the same append.
                Some(_) | None if is_anywhere => {
                    let current = standing.last();
                    return Err(AppendError::WrongExpectedRevision { expected, current });
                }
                Some(_) | None => return Ok(None),
            }
        }
        Ok(last.map(|(revision, position)| Appended {
            revision: Some(revision),
            position: Some(position),
        }))
    }

    fn revision_of(&self, stream: &str, id: Uuid) -> Result<Option<u64>, crate::ReadError> {
        let pending = self.pending.get(stream).into_iter().flatten();
        if let Some((revision, ..)) = pending.rev().find(|(_, pending, _)| *pending == id) {
            return Ok(Some(*revision));
        }
        let Some(position) = self.reader.index.by_id(stream, id)? else { return Ok(None) };
        let found = self.reader.at(position)?;
        let found = found.filter(|event| event.id() == id && event.stream() == stream);
        Ok(found.map(|event| event.revision()))
    }

    fn id_at(&self, stream: &str, revision: u64) -> Result<Option<(Uuid, u64)>, crate::ReadError> {
        if let Some(pending) = self.pending.get(stream)
            && let Some((_, id, position)) = pending.iter().find(|(at, ..)| *at == revision)
        {
            return Ok(Some((*id, *position)));
        }
        let event = self.reader.event(stream, revision)?;
        Ok(event.map(|event| (event.id(), event.position())))
    }
}

/// The next number of a computed stream, which is taken by this.
fn next_number(reader: &Reader, numbers: &mut Numbers, key: Key<'_>) -> Result<u64, AppendError> {
    let (Key::Stream(name) | Key::Category(name) | Key::EventType(name)) = key;
    if let Some(next) = numbers.next.get_mut(name) {
        *next += 1;
        return Ok(*next - 1);
    }
    let extent = reader.index.extent(key);
    let extent = extent.map_err(|error| unavailable("reading the index", &error))?;
    numbers.set(name, extent.next + 1);
    Ok(extent.next)
}

/// Whether a stream is as expected.
fn check(
    expected: ExpectedRevision,
    standing: Standing,
    has_metadata: impl FnOnce() -> Result<bool, AppendError>,
) -> Result<(), AppendError> {
    let is_right = match expected {
        ExpectedRevision::Any => true,
        ExpectedRevision::NoStream => standing.next == 0 || standing.is_deleted,
        ExpectedRevision::StreamExists if standing.is_deleted => {
            return Err(AppendError::StreamDeleted);
        }
        ExpectedRevision::StreamExists => standing.next > 0 || has_metadata()?,
        ExpectedRevision::Exact(revision) => standing.last() == Some(revision),
    };
    if is_right {
        return Ok(());
    }
    Err(AppendError::WrongExpectedRevision { expected, current: standing.last() })
}

fn metadata_event(data: Vec<u8>) -> NewEvent {
    NewEvent { event_type: METADATA_TYPE.to_owned(), ..NewEvent::json("", data) }
}
