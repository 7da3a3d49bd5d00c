//! What was appended lately, in memory.

use super::{Extent, Key, id_key, places};
use crate::event::{RecordedEvent, TOMBSTONE_REVISION};
use std::collections::HashMap;

/// About what an event takes, and a stream, category or type beside its name.
const EVENT_BYTES: usize = 96;
const STREAM_BYTES: usize = 160;

/// Positions of recent events.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pub(super) streams: HashMap<Box<str>, Recent>,
    pub(super) categories: HashMap<Box<str>, Recent>,
    pub(super) types: HashMap<Box<str>, Recent>,
    pub(super) ids: HashMap<u64, u64>,
    /// About how many bytes it takes.
    pub(super) bytes: usize,
    /// Up to where in the log it is complete.
    pub(super) end: u64,
}

/// Those of one stream, by number.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) positions: Vec<(u64, u64)>,
    pub(super) tombstone: Option<u64>,
}

impl Tail {
    pub(super) fn insert(&mut self, event: &RecordedEvent) {
        let position = event.position();
        for (key, number) in places(event) {
            let (map, name) = match key {
                Key::Stream(name) => (&mut self.streams, name),
                Key::Category(name) => (&mut self.categories, name),
                Key::EventType(name) => (&mut self.types, name),
            };
            if !map.contains_key(name) {
                map.insert(name.into(), Recent::default());
                self.bytes += name.len() + STREAM_BYTES;
            }
            let Some(recent) = map.get_mut(name) else { continue };
            if number == TOMBSTONE_REVISION {
                recent.tombstone = Some(position);
            } else {
                recent.positions.push((number, position));
            }
        }
        self.ids.insert(id_key(event.stream(), event.id()), position);
        self.bytes += EVENT_BYTES;
    }

    fn recent(&self, key: Key<'_>) -> Option<&Recent> {
        match key {
            Key::Stream(name) => self.streams.get(name),
            Key::Category(name) => self.categories.get(name),
            Key::EventType(name) => self.types.get(name),
        }
    }

    pub(super) fn extent(&self, key: Key<'_>) -> Extent {
        self.recent(key).map_or_else(Extent::default, |recent| Extent {
            next: recent.positions.last().map_or(0, |(number, _)| number + 1),
            tombstone: recent.tombstone,
        })
    }

    pub(super) fn positions(
        &self,
        key: Key<'_>,
        from: u64,
        count: usize,
        to: &mut Vec<(u64, u64)>,
    ) {
        let Some(recent) = self.recent(key) else { return };
        let start = recent.positions.partition_point(|(number, _)| *number < from);
        let room = count.saturating_sub(to.len());
        to.extend(recent.positions[start..].iter().take(room));
    }

    pub(super) fn by_id(&self, id: u64) -> Option<u64> {
        self.ids.get(&id).copied()
    }
}
