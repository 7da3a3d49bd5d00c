//! Whether a destination takes messages now, and what was last wrong with it.

use crate::health::{LaneHealth, LaneState};
use postroom_core::Outcome;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_CAP: Duration = Duration::from_secs(60);
/// Each look at a destination that is gone costs a message, so they are rare.
const PAUSE_GONE: Duration = Duration::from_secs(60 * 60);

/// A lane's pauses: what its destination said decides about them.
#[derive(Debug)]
pub struct Pauses {
    integration: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    paused_until: Option<Instant>,
    last_pause: Option<Duration>,
    error: Option<String>,
}

impl Pauses {
    /// A lane that runs.
    #[must_use]
    pub fn new(integration: &str) -> Self {
        Self { integration: integration.to_owned(), state: Mutex::default() }
    }

    /// Whether nothing is to be delivered now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.left().is_some()
    }

    /// How long nothing is to be delivered; `None` when the lane runs.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let left = self.state().paused_until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Notes what a sink said of one message.
    pub fn heard(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Delivered => self.delivered(),
            Outcome::Refuse { error } => self.refused(error),
            Outcome::Gone { error } => self.gone(error),
            Outcome::Retry { error, .. } | Outcome::Reject { error } => self.failed(error),
        }
    }

    /// How the lane is, with so many messages in flight.
    #[must_use]
    pub fn health(&self, in_flight: usize) -> LaneHealth {
        let is_paused = self.is_paused();
        LaneHealth {
            integration: self.integration.clone(),
            state: if is_paused { LaneState::Paused } else { LaneState::Running },
            error: self.state().error.clone(),
            in_flight,
        }
    }

    /// The destination refuses everything: stop for a while, longer each time in a row.
    fn refused(&self, error: &str) {
        let mut state = self.state();
        if state.paused_until.is_some_and(|until| until > Instant::now()) {
            return;
        }
        let pause = state.last_pause.map_or(PAUSE_FIRST, |last| (last * 2).min(PAUSE_CAP));
        state.last_pause = Some(pause);
        state.paused_until = Some(Instant::now() + pause);
        state.error = Some(error.to_owned());
        tracing::error!(
            integration = self.integration,
            error,
            retry_in = ?pause,
            "the destination refuses: lane paused, no attempt used"
        );
    }

    /// The destination was given up: stop for long. A new start of the relay looks again at once.
    fn gone(&self, error: &str) {
        let mut state = self.state();
        state.paused_until = Some(Instant::now() + PAUSE_GONE);
        if state.error.as_deref() != Some(error) {
            tracing::error!(
                integration = self.integration,
                error,
                retry_in = ?PAUSE_GONE,
                "the destination is gone: lane paused, this message is dead"
            );
        }
        state.error = Some(error.to_owned());
    }

    /// Says once that a lane has begun to fail.
    fn failed(&self, error: &str) {
        let mut state = self.state();
        if state.error.is_none() {
            tracing::warn!(integration = self.integration, error, "deliveries fail");
        }
        state.error = Some(error.to_owned());
    }

    /// Says once that a lane works again.
    fn delivered(&self) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!(integration = self.integration, "deliveries work again");
        }
        state.last_pause = None;
        state.paused_until = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
