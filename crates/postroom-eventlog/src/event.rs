//! Events: what an application appends, and what the log has recorded.

use crate::log::record::{self, Head};
use bytes::Bytes;
use uuid::Uuid;

/// The type of an event that points at another one; its data is `REVISION@STREAM`.
pub const LINK_TYPE: &str = "$>";
/// The type of the last event of a stream that was tombstoned.
pub const TOMBSTONE_TYPE: &str = "$streamDeleted";
/// The type of the events of a metadata stream.
pub const METADATA_TYPE: &str = "$metadata";
/// The revision of a tombstone, after which nothing can be appended.
pub const TOMBSTONE_REVISION: u64 = i64::MAX as u64;

/// An event to append.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewEvent {
    /// By which a repeated append is recognised.
    pub id: Uuid,
    /// What happened, e.g. `order-created`.
    pub event_type: String,
    /// Whether `data` is said to be JSON. The log never parses it.
    pub is_json: bool,
    /// What happened in particular.
    pub data: Bytes,
    /// What the application keeps beside the data.
    pub metadata: Bytes,
}

impl NewEvent {
    /// An event with a new id and JSON data.
    #[must_use]
    pub fn json(event_type: &str, data: impl Into<Bytes>) -> Self {
        Self {
            id: Uuid::new_v4(),
            event_type: event_type.to_owned(),
            is_json: true,
            data: data.into(),
            metadata: Bytes::new(),
        }
    }
}

/// An event of the log. A clone shares the bytes.
#[derive(Clone)]
pub struct RecordedEvent {
    head: Head,
    record: Bytes,
}

impl RecordedEvent {
    /// Takes a record that has been checked.
    pub(crate) fn of_record(head: Head, record: Bytes) -> Self {
        Self { head, record }
    }

    /// By which its append is recognised.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.head.id
    }

    /// Its number in its stream, from 0.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.head.revision
    }

    /// Where it stands in the whole log. A later event has a higher position, and it never changes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head.position
    }

    /// When it was appended, in units of 100 ns since 1970.
    #[must_use]
    pub fn created_ticks(&self) -> u64 {
        self.head.created
    }

    /// Whether its data is said to be JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.head.is_json()
    }

    /// The stream that it was appended to.
    #[must_use]
    pub fn stream(&self) -> &str {
        record::text(&self.record, self.head.stream())
    }

    /// What happened.
    #[must_use]
    pub fn event_type(&self) -> &str {
        record::text(&self.record, self.head.event_type())
    }

    /// What the application keeps beside the data.
    #[must_use]
    pub fn metadata(&self) -> Bytes {
        self.record.slice(self.head.metadata())
    }

    /// What happened in particular.
    #[must_use]
    pub fn data(&self) -> Bytes {
        self.record.slice(self.head.data())
    }

    /// The same with bytes of its own: a record that was read with others keeps all of them.
    pub(crate) fn detached(&self) -> Self {
        Self { head: self.head, record: Bytes::copy_from_slice(&self.record) }
    }

    /// Its bytes in the log.
    pub(crate) fn record(&self) -> &[u8] {
        &self.record
    }

    /// The fixed part of its record.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The revision and stream that a link points at; `None` where this is no link, or a broken one.
    #[must_use]
    pub fn link_target(&self) -> Option<(u64, String)> {
        if self.event_type() != LINK_TYPE {
            return None;
        }
        let data = self.data();
        let (revision, stream) = std::str::from_utf8(&data).ok()?.split_once('@')?;
        Some((revision.parse().ok()?, stream.to_owned()))
    }
}

impl std::fmt::Debug for RecordedEvent {
    /// Without data and metadata, which may be personal.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedEvent")
            .field("id", &self.id())
            .field("stream", &self.stream())
            .field("revision", &self.revision())
            .field("position", &self.position())
            .field("event_type", &self.event_type())
            .finish_non_exhaustive()
    }
}

/// What a read gives: an event, or a link and what it points at.
#[derive(Clone, Debug)]
pub struct ResolvedEvent {
    /// The event; `None` where `link` points at one that is gone.
    pub event: Option<RecordedEvent>,
    /// The link by which it was found, where links are resolved and this is one.
    pub link: Option<RecordedEvent>,
}

impl ResolvedEvent {
    /// An event that is no link, or a link that is not to be resolved.
    pub(crate) fn plain(event: RecordedEvent) -> Self {
        Self { event: Some(event), link: None }
    }

    /// What was read: the link where there is one, the event otherwise. Its revision and position
    /// are where a reader goes on; its id is what a persistent subscription acknowledges.
    #[must_use]
    pub fn original(&self) -> Option<&RecordedEvent> {
        self.link.as_ref().or(self.event.as_ref())
    }
}
