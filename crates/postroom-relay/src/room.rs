//! What a lane holds right now, and whether it may have more.

use crate::health::LaneHealth;
use crate::pauses::Pauses;
use crate::settings::Lane;
use postroom_core::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Whether a message was lost with others and then again on its own in its lane: whatever lost it
/// the second time was one of a few.
pub(crate) fn is_suspect(rescues: u32) -> bool {
    rescues > 1
}

/// A lane takes no more while it holds this many bytes.
const BYTES_MAX: usize = 4 << 20;

/// Room for messages that are being asked for, until this is dropped: what came of it is counted
/// message by message.
pub(crate) struct Reservation {
    room: Arc<LaneRoom>,
    pub(crate) rows: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.room.reserved.fetch_sub(self.rows, Ordering::AcqRel);
    }
}

/// A message in hand. It is counted until this is dropped: once its fate is recorded, or when
/// the run that holds it is dropped.
pub(crate) struct Place {
    pub(crate) room: Arc<LaneRoom>,
    pub(crate) rescues: u32,
    weight: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let room = &self.room;
        room.in_hand.fetch_sub(1, Ordering::AcqRel);
        room.bytes.fetch_sub(self.weight, Ordering::AcqRel);
        if self.rescues > 0 {
            room.suspect_in_hand.store(false, Ordering::Release);
            room.rescued_in_hand.store(false, Ordering::Release);
        }
    }
}

/// A lane's settings and what it holds right now.
pub(crate) struct LaneRoom {
    pub(crate) lane: Lane,
    in_hand: AtomicUsize,
    /// Room for messages that are being asked for.
    reserved: AtomicUsize,
    bytes: AtomicUsize,
    in_hand_max: usize,
    rescued_in_hand: AtomicBool,
    suspect_in_hand: AtomicBool,
    pub(crate) pauses: Pauses,
}

impl LaneRoom {
    pub(crate) fn new(lane: Lane, take_max: usize) -> Self {
        // Enough that calls never wait for the database: what runs, and as much again that is
        // being taken, waits, or is being recorded.
        let in_hand_max = (4 * lane.concurrency.max(1) * lane.call_max()).max(2 * take_max);
        Self {
            pauses: Pauses::new(&lane.integration),
            lane,
            in_hand: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            in_hand_max,
            rescued_in_hand: AtomicBool::new(false),
            suspect_in_hand: AtomicBool::new(false),
        }
    }

    /// Whether to ask for messages: not until a quarter of the room is free, so that a busy lane
    /// is filled in batches and not one by one.
    pub(crate) fn has_room(&self) -> bool {
        self.free() * 4 >= self.in_hand_max
            && self.bytes.load(Ordering::Acquire) < BYTES_MAX
            && !self.pauses.is_paused()
    }

    /// Reserves room for up to `most` messages, if there is some.
    pub(crate) fn reserve(self: &Arc<Self>, most: usize) -> Option<Reservation> {
        if !self.has_room() {
            return None;
        }
        let mut rows = 0;
        // In one step, since two may ask at the same time.
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            rows = self.in_hand_max.saturating_sub(self.in_hand() + reserved).min(most);
            (rows > 0).then_some(reserved + rows)
        });
        (rows > 0).then(|| Reservation { room: Arc::clone(self), rows })
    }

    fn free(&self) -> usize {
        let reserved = self.reserved.load(Ordering::Acquire);
        self.in_hand_max.saturating_sub(self.in_hand() + reserved)
    }

    /// Whether to ask for a rescued message: they are handled one at a time.
    pub(crate) fn wants_rescued(&self) -> bool {
        !self.holds_rescued() && !self.pauses.is_paused()
    }

    pub(crate) fn holds_rescued(&self) -> bool {
        self.rescued_in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn holds_suspect(&self) -> bool {
        self.suspect_in_hand.load(Ordering::Acquire)
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Counts a message that was taken.
    pub(crate) fn add(self: &Arc<Self>, message: &Message, rescues: u32) -> Place {
        let weight = message.weight();
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(weight, Ordering::AcqRel);
        if rescues > 0 {
            self.rescued_in_hand.store(true, Ordering::Release);
            self.suspect_in_hand.store(is_suspect(rescues), Ordering::Release);
        }
        Place { room: Arc::clone(self), rescues, weight }
    }

    pub(crate) fn health(&self) -> LaneHealth {
        self.pauses.health(self.in_hand())
    }
}
