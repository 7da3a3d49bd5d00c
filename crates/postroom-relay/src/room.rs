//! What a lane holds right now, and whether it may have more.

use crate::health::{LaneHealth, LaneState};
use crate::settings::Lane;
use postroom_core::Message;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Whether a message was lost with others and then again on its own in its lane: whatever lost it
/// the second time was one of a few.
pub(crate) fn is_suspect(rescues: u32) -> bool {
    rescues > 1
}

/// A lane takes no more while it holds this many bytes.
const BYTES_MAX: usize = 4 << 20;
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_CAP: Duration = Duration::from_secs(60);
/// Each look at a destination that is gone costs a message, so they are rare.
const PAUSE_GONE: Duration = Duration::from_secs(60 * 60);

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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    paused_until: Option<Instant>,
    last_pause: Option<Duration>,
    error: Option<String>,
}

impl LaneRoom {
    pub(crate) fn new(lane: Lane, take_max: usize) -> Self {
        // Enough that calls never wait for the database: what runs, and as much again that is
        // being taken, waits, or is being recorded.
        let in_hand_max = (4 * lane.concurrency.max(1) * lane.call_max()).max(2 * take_max);
        Self {
            lane,
            in_hand: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            in_hand_max,
            rescued_in_hand: AtomicBool::new(false),
            suspect_in_hand: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether to ask for messages: not until a quarter of the room is free, so that a busy lane
    /// is filled in batches and not one by one.
    pub(crate) fn has_room(&self) -> bool {
        self.free() * 4 >= self.in_hand_max
            && self.bytes.load(Ordering::Acquire) < BYTES_MAX
            && !self.is_paused()
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
        !self.holds_rescued() && !self.is_paused()
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

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused_until.is_some_and(|until| until > Instant::now())
    }

    /// The destination refuses everything: stop for a while, longer each time in a row.
    pub(crate) fn refused(&self, error: &str) {
        let mut state = self.state();
        if state.paused_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        let pause = state.last_pause.map_or(PAUSE_FIRST, |last| (last * 2).min(PAUSE_CAP));
        state.last_pause = Some(pause);
        state.paused_until = Some(Instant::now() + pause);
        state.error = Some(error.to_owned());
        tracing::error!(
            integration = self.lane.integration,
            error,
            retry_in = ?pause,
            "the destination refuses: lane paused, no attempt used"
        );
    }

    /// The destination was given up: stop for long. A new start of the relay looks again at once.
    pub(crate) fn gone(&self, error: &str) {
        let mut state = self.state();
        state.paused_until = Some(Instant::now() + PAUSE_GONE);
        if state.error.as_deref() != Some(error) {
            tracing::error!(
                integration = self.lane.integration,
                error,
                retry_in = ?PAUSE_GONE,
                "the destination is gone: lane paused, this message is dead"
            );
        }
        state.error = Some(error.to_owned());
    }

    /// Says once that a lane has begun to fail.
    pub(crate) fn failed(&self, error: &str) {
        let mut state = self.state();
        if state.error.is_none() {
            tracing::warn!(integration = self.lane.integration, error, "deliveries fail");
        }
        state.error = Some(error.to_owned());
    }

    /// Says once that a lane works again.
    pub(crate) fn delivered(&self) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!(integration = self.lane.integration, "deliveries work again");
        }
        state.last_pause = None;
        state.paused_until = None;
    }

    pub(crate) fn health(&self) -> LaneHealth {
        let paused = self.is_paused();
        LaneHealth {
            integration: self.lane.integration.clone(),
            state: if paused { LaneState::Paused } else { LaneState::Running },
            error: self.state().error.clone(),
            in_flight: self.in_hand(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
