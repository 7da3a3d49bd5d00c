//! What a lane holds right now of one database's messages, and whether it may have more.

use crate::destinations::Destination;
use crate::health::{LaneHealth, LaneState};
use crate::pauses::{Gate, Pauses};
use crate::settings::Lane;
use crate::turns::Turns;
use postroom_core::{Message, Rescued};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A lane takes no more while it holds this many bytes.
const BYTES_MAX: usize = 4 << 20;

/// A lane holds at most this many claims of rescued messages. If one of them kills the relay, all
/// that were in hand have been lost once more, and their next claims are half as large: with too
/// many at once all of them would end alone.
const RESCUED_CLAIMS_MAX: usize = 4;

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

/// A claim of rescued messages in hand. It is counted until the last of them is dropped.
pub(crate) struct RescuedClaim {
    room: Arc<LaneRoom>,
    pub(crate) which: Rescued,
}

impl Drop for RescuedClaim {
    fn drop(&mut self) {
        if self.which == Rescued::Alone {
            self.room.holds_alone.store(false, Ordering::Release);
        }
        self.room.rescued_claims.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A message in hand. It is counted until this is dropped: once its fate is recorded, or when
/// the run that holds it is dropped.
pub(crate) struct Place {
    pub(crate) room: Arc<LaneRoom>,
    pub(crate) rescues: u32,
    weight: usize,
    rescued: Option<Arc<RescuedClaim>>,
}

impl Place {
    /// How it was rescued, if it was.
    pub(crate) fn rescued(&self) -> Option<Rescued> {
        self.rescued.as_ref().map(|claim| claim.which)
    }

    /// Whether nothing else that was rescued is handled meanwhile.
    pub(crate) fn is_alone(&self) -> bool {
        self.rescued() == Some(Rescued::Alone)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let room = &self.room;
        room.in_hand.fetch_sub(1, Ordering::AcqRel);
        room.bytes.fetch_sub(self.weight, Ordering::AcqRel);
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
    /// There may be rescued messages to take.
    rescued_wait: AtomicBool,
    rescued_claims: AtomicUsize,
    holds_alone: AtomicBool,
    /// Why it takes nothing more until the relay starts again.
    held: OnceLock<String>,
    /// The destination's, for all databases.
    pub(crate) pauses: Arc<Pauses>,
    /// The destination's, for all databases.
    pub(crate) turns: Turns,
}

impl LaneRoom {
    pub(crate) fn new(destination: &Destination, take_max: usize) -> Self {
        let Destination { lane, pauses, turns } = destination.clone();
        // Enough that calls never wait for the database: what runs, and as much again that is
        // being taken, waits, or is being recorded.
        let in_hand_max = (4 * lane.concurrency.max(1) * lane.call_max()).max(2 * take_max);
        Self {
            pauses,
            turns,
            lane,
            in_hand: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            in_hand_max,
            rescued_wait: AtomicBool::new(true),
            rescued_claims: AtomicUsize::new(0),
            holds_alone: AtomicBool::new(false),
            held: OnceLock::new(),
        }
    }

    /// What may be delivered now: nothing of a database whose rows vanish, whatever the destination says.
    fn gate(&self) -> Gate {
        if self.held.get().is_some() { Gate::Closed } else { self.pauses.gate() }
    }

    /// Whether nothing is to be delivered now.
    pub(crate) fn is_paused(&self) -> bool {
        self.held.get().is_some() || self.pauses.is_paused()
    }

    /// Pauses the lane until the relay starts again. Says whether it did not before.
    pub(crate) fn hold(&self, why: String) -> bool {
        self.held.set(why).is_ok()
    }

    /// Whether to ask for messages: not until a quarter of the room is free, so that a busy lane
    /// is filled in batches and not one by one.
    pub(crate) fn has_room(&self) -> bool {
        match self.gate() {
            Gate::Open => {
                self.free() * 4 >= self.in_hand_max
                    && self.bytes.load(Ordering::Acquire) < BYTES_MAX
            }
            Gate::OneAtATime => self.free() == self.in_hand_max,
            Gate::Closed => false,
        }
    }

    /// Reserves room for up to `most` messages, if there is some.
    pub(crate) fn reserve(self: &Arc<Self>, most: usize) -> Option<Reservation> {
        if !self.has_room() {
            return None;
        }
        let most = if self.gate() == Gate::Open { most } else { most.min(1) };
        let mut rows = 0;
        // In one step, since two may ask at the same time.
        let _ = self.reserved.fetch_update(Ordering::AcqRel, Ordering::Acquire, |reserved| {
            rows = self.in_hand_max.saturating_sub(self.in_hand() + reserved).min(most);
            (rows > 0).then_some(reserved + rows)
        });
        (rows > 0).then(|| Reservation { room: Arc::clone(self), rows })
    }

    /// Reserves room for one more claim of rescued messages, all of its `rows`.
    pub(crate) fn reserve_rescued(self: &Arc<Self>, rows: usize) -> Option<Reservation> {
        let is_open = self.gate() == Gate::Open;
        let claims = self.rescued_claims.load(Ordering::Acquire);
        if !is_open || claims >= RESCUED_CLAIMS_MAX {
            return None;
        }
        self.reserve(rows).filter(|reservation| reservation.rows == rows)
    }

    fn free(&self) -> usize {
        let reserved = self.reserved.load(Ordering::Acquire);
        self.in_hand_max.saturating_sub(self.in_hand() + reserved)
    }

    /// Notes whether there may be rescued messages to take.
    pub(crate) fn expect_rescued(&self, expected: bool) {
        self.rescued_wait.store(expected, Ordering::Release);
    }

    /// Whether there may be rescued messages to take now, or once there is room.
    pub(crate) fn expects_rescued(&self) -> bool {
        self.rescued_wait.load(Ordering::Acquire) && self.gate() == Gate::Open
    }

    /// Counts a claim of rescued messages that was taken.
    pub(crate) fn hold_rescued(self: &Arc<Self>, which: Rescued) -> Arc<RescuedClaim> {
        self.rescued_claims.fetch_add(1, Ordering::AcqRel);
        if which == Rescued::Alone {
            self.holds_alone.store(true, Ordering::Release);
        }
        Arc::new(RescuedClaim { room: Arc::clone(self), which })
    }

    pub(crate) fn holds_rescued(&self) -> bool {
        self.rescued_claims.load(Ordering::Acquire) > 0
    }

    pub(crate) fn holds_alone(&self) -> bool {
        self.holds_alone.load(Ordering::Acquire)
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Counts a message that was taken.
    pub(crate) fn add(
        self: &Arc<Self>,
        message: &Message,
        rescues: u32,
        rescued: Option<Arc<RescuedClaim>>,
    ) -> Place {
        let weight = message.weight();
        self.in_hand.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(weight, Ordering::AcqRel);
        Place { room: Arc::clone(self), rescues, weight, rescued }
    }

    pub(crate) fn health(&self) -> LaneHealth {
        let health = self.pauses.health(self.in_hand());
        match self.held.get() {
            Some(why) => {
                LaneHealth { state: LaneState::Paused, error: Some(why.clone()), ..health }
            }
            None => health,
        }
    }
}
