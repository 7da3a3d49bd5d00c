//! Whether a destination takes messages now, and what was last wrong with it.
//!
//! A refusal (credentials, a missing topic, a forbidden payload) concerns the destination when it
//! meets every message, and one message when it meets that one while others are accepted. One
//! refusal does not tell which of the two it is; what becomes of other messages does:
//!
//! - Nothing was accepted lately: the lane pauses, and the message goes back with no attempt used.
//! - Others were accepted just before: the lane goes on, and the refusal is unclear for a moment.
//!   When another message is accepted, it was this message: a failed attempt. When none is, the
//!   lane pauses.
//! - After a pause the lane delivers one message at a time until one is accepted, and a message
//!   that is refused makes way for the others. Refused once more after another was accepted, it has
//!   failed.

use crate::health::{LaneHealth, LaneState};
use postroom_core::{MessageId, Outcome};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_CAP: Duration = Duration::from_secs(60);
/// Each look at a destination that is gone costs a message, so they are rare.
const PAUSE_GONE: Duration = Duration::from_secs(60 * 60);
/// An acceptance is recent for so long.
const LATELY: Duration = Duration::from_secs(5);
/// A refusal is unclear for so long at most.
const DOUBT: Duration = Duration::from_secs(1);
/// After so many refusals in a row there is no doubt.
const DOUBTS_MAX: usize = 32;
/// So many messages are tried after a short pause, one after the other, and so many after a long one:
/// a message that would be accepted does not wait for a minute behind each that is refused.
const PROBES: u32 = 8;
const PROBES_LATER: u32 = 32;
const PROBES_PAUSE_MAX: Duration = Duration::from_secs(20);
/// Refused messages are remembered up to this many.
const REFUSED_MAX: usize = 4_096;
/// How long others wait while one message is tried.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// What a refusal means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// Others are accepted: it concerns this message, and is a failed attempt.
    Message,
    /// It meets everything: no attempt is used, and others are tried before this message, which
    /// comes again after this time.
    Destination { again_in: Duration },
    /// What becomes of other messages will tell; [`Pauses::ruling`] waits for it.
    Unclear(Doubt),
}

/// A refusal that may concern the message or the destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Doubt {
    /// How many messages had been accepted by then.
    accepted: u64,
    until: Instant,
}

/// What a lane may deliver now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Gate {
    /// As much as it can.
    Open,
    /// One message, and the next when that one's outcome is known.
    OneAtATime,
    /// Nothing.
    Closed,
}

/// A lane's pauses: what its destination said decides about them.
#[derive(Debug)]
pub struct Pauses {
    integration: String,
    state: Mutex<State>,
    /// A message was accepted, or a pause has begun.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing is delivered until then, and one message at a time from then on.
    paused_until: Option<Instant>,
    last_pause: Option<Duration>,
    /// How many more messages may be refused, one at a time, until the next pause.
    probes_left: u32,
    /// Some other transport's message is being tried.
    is_probed: bool,
    error: Option<String>,
    /// Why nothing is delivered until the relay starts again.
    held: Option<String>,
    accepted: u64,
    accepted_at: Option<Instant>,
    refused_in_a_row: usize,
    /// Messages that were refused, and how many had been accepted when they were.
    refused: BTreeMap<MessageId, u64>,
}

impl State {
    fn gate(&self) -> Gate {
        match self.paused_until {
            _ if self.held.is_some() => Gate::Closed,
            None => Gate::Open,
            Some(until) if until > Instant::now() => Gate::Closed,
            Some(_) => Gate::OneAtATime,
        }
    }

    fn left(&self) -> Option<Duration> {
        if self.held.is_some() {
            return Some(PAUSE_GONE);
        }
        let left = self.paused_until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    fn remember(&mut self, message: &MessageId) {
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(message) {
            self.refused.pop_first();
        }
        self.refused.insert(message.clone(), self.accepted);
    }

    fn by_destination(&self) -> Refusal {
        let again_in = self.left().unwrap_or_default().max(PAUSE_FIRST);
        Refusal::Destination { again_in }
    }
}

impl Pauses {
    /// A lane that runs.
    #[must_use]
    pub fn new(integration: &str) -> Self {
        Self {
            integration: integration.to_owned(),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Whether nothing is to be delivered now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.left().is_some()
    }

    /// How long nothing is to be delivered; `None` when the lane runs.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.state().left()
    }

    pub(crate) fn gate(&self) -> Gate {
        self.state().gate()
    }

    /// Lets a message be delivered that another transport has brought, or says how long it is to
    /// wait. What is returned is kept until the outcome is [weighed](Self::weigh).
    ///
    /// # Errors
    /// How long to wait.
    pub fn enter(&self) -> Result<Option<Probe<'_>>, Duration> {
        let mut state = self.state();
        match state.gate() {
            Gate::Open => Ok(None),
            Gate::Closed => Err(state.left().unwrap_or(PROBE_WAIT)),
            Gate::OneAtATime if state.is_probed => Err(PROBE_WAIT),
            Gate::OneAtATime => {
                state.is_probed = true;
                Ok(Some(Probe(self)))
            }
        }
    }

    /// Notes what a sink said of one message, and says what is to be made of it: a refusal that
    /// concerns the message is a failed attempt.
    ///
    /// # Errors
    /// When the destination refuses everything: after how long the message may be tried again. No
    /// attempt is used.
    pub async fn weigh(&self, message: &MessageId, outcome: Outcome) -> Result<Outcome, Duration> {
        let refusal = self.heard(message, &outcome);
        let (Some(mut refusal), Outcome::Refuse { error }) = (refusal, &outcome) else {
            return Ok(outcome);
        };
        if let Refusal::Unclear(doubt) = refusal {
            refusal = self.ruling(message, doubt, error).await;
        }
        match refusal {
            Refusal::Message => Ok(Outcome::retry(error.clone())),
            Refusal::Destination { again_in } => Err(again_in),
            Refusal::Unclear(_) => Err(DOUBT),
        }
    }

    /// Notes what a sink said of one message. Says what it means if it was a refusal.
    pub(crate) fn heard(&self, message: &MessageId, outcome: &Outcome) -> Option<Refusal> {
        match outcome {
            Outcome::Delivered => self.delivered(message),
            Outcome::Refuse { error } => return Some(self.refused(message, error)),
            Outcome::Gone { error } => self.gone(error),
            Outcome::Retry { error, .. } | Outcome::Reject { error } => self.failed(error),
        }
        None
    }

    /// Waits until it is clear what a refusal meant. Never says that it is unclear.
    pub(crate) async fn ruling(&self, message: &MessageId, doubt: Doubt, error: &str) -> Refusal {
        loop {
            // Made before the look: what changes in between is not missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if state.accepted > doubt.accepted {
                    state.remember(message);
                    self.note_failure(&mut state, error);
                    return Refusal::Message;
                }
                if state.gate() == Gate::Open && doubt.until <= Instant::now() {
                    self.pause(&mut state, error);
                }
                if state.gate() != Gate::Open {
                    return state.by_destination();
                }
            }
            let _ = tokio::time::timeout_at(doubt.until, changed).await;
        }
    }

    /// Pauses the lane until the relay starts again. Says whether it did not before.
    pub fn hold(&self, why: &str) -> bool {
        self.state().held.replace(why.to_owned()).is_none()
    }

    /// How the lane is, with so many messages in flight.
    #[must_use]
    pub fn health(&self, in_flight: usize) -> LaneHealth {
        let is_paused = self.is_paused();
        let error = {
            let state = self.state();
            state.held.clone().or_else(|| state.error.clone())
        };
        LaneHealth {
            integration: self.integration.clone(),
            state: if is_paused { LaneState::Paused } else { LaneState::Running },
            error,
            in_flight,
        }
    }

    fn refused(&self, message: &MessageId, error: &str) -> Refusal {
        let mut state = self.state();
        let before = state.refused.get(message).copied();
        state.remember(message);
        if before.is_some_and(|accepted| accepted < state.accepted) {
            self.note_failure(&mut state, error);
            return Refusal::Message;
        }
        state.refused_in_a_row += 1;
        match state.gate() {
            Gate::Open => {
                let lately = state.accepted_at.is_some_and(|at| at.elapsed() < LATELY);
                if lately && state.refused_in_a_row <= DOUBTS_MAX {
                    let (accepted, until) = (state.accepted, Instant::now() + DOUBT);
                    return Refusal::Unclear(Doubt { accepted, until });
                }
                self.pause(&mut state, error);
            }
            Gate::OneAtATime => {
                state.probes_left = state.probes_left.saturating_sub(1);
                if state.probes_left == 0 {
                    self.pause(&mut state, error);
                }
            }
            Gate::Closed => {}
        }
        state.by_destination()
    }

    /// The destination refuses everything: stop for a while, longer each time in a row.
    fn pause(&self, state: &mut State, error: &str) {
        let pause = state.last_pause.map_or(PAUSE_FIRST, |last| (last * 2).min(PAUSE_CAP));
        state.last_pause = Some(pause);
        state.paused_until = Some(Instant::now() + pause);
        state.probes_left = if pause <= PROBES_PAUSE_MAX { PROBES } else { PROBES_LATER };
        state.error = Some(error.to_owned());
        self.changed.notify_waiters();
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
        state.probes_left = 1;
        self.changed.notify_waiters();
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
    fn note_failure(&self, state: &mut State, error: &str) {
        if state.error.is_none() {
            tracing::warn!(integration = self.integration, error, "deliveries fail");
        }
        state.error = Some(error.to_owned());
    }

    fn failed(&self, error: &str) {
        let mut state = self.state();
        self.note_failure(&mut state, error);
        // It says something else than before: it does not refuse everything.
        if state.gate() == Gate::OneAtATime {
            state.paused_until = None;
        }
    }

    /// Says once that a lane works again.
    fn delivered(&self, message: &MessageId) {
        let mut state = self.state();
        if state.error.take().is_some() {
            tracing::info!(integration = self.integration, "deliveries work again");
        }
        state.last_pause = None;
        state.paused_until = None;
        state.accepted += 1;
        state.accepted_at = Some(Instant::now());
        state.refused_in_a_row = 0;
        state.refused.remove(message);
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one message that is tried after a pause; the next may follow once this is dropped.
#[derive(Debug)]
pub struct Probe<'a>(&'a Pauses);

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.0.state().is_probed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn fresh() -> MessageId {
        Uuid::new_v4().into()
    }

    fn refuse(pauses: &Pauses, message: &MessageId) -> Refusal {
        pauses.heard(message, &Outcome::refuse("403")).expect("a refusal")
    }

    fn accept(pauses: &Pauses) {
        assert_eq!(pauses.heard(&fresh(), &Outcome::Delivered), None);
    }

    fn is_by_destination(refusal: Refusal) -> bool {
        matches!(refusal, Refusal::Destination { again_in } if again_in >= PAUSE_FIRST)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_between_acceptances_is_a_failed_attempt() {
        let (pauses, bad) = (Pauses::new("a"), fresh());
        accept(&pauses);
        let Refusal::Unclear(doubt) = refuse(&pauses, &bad) else { panic!("others were accepted") };
        let later = async {
            tokio::time::sleep(DOUBT / 2).await;
            accept(&pauses);
        };
        let (ruling, ()) = tokio::join!(pauses.ruling(&bad, doubt, "403"), later);
        assert_eq!((ruling, pauses.gate()), (Refusal::Message, Gate::Open));
        // The next time it is clear at once, if another was accepted since.
        accept(&pauses);
        assert_eq!(refuse(&pauses, &bad), Refusal::Message);
        assert!(matches!(refuse(&pauses, &bad), Refusal::Unclear(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn when_nothing_is_accepted_any_more_the_lane_pauses_and_no_attempt_is_used() {
        let pauses = Pauses::new("a");
        accept(&pauses);
        let ids: Vec<MessageId> = (0..3).map(|_| fresh()).collect();
        for id in &ids {
            let Refusal::Unclear(doubt) = refuse(&pauses, id) else { panic!("a doubt") };
            let _ = tokio::time::timeout(DOUBT / 4, pauses.ruling(id, doubt, "403")).await;
        }
        let doubt = Doubt { accepted: 1, until: Instant::now() + DOUBT / 4 };
        assert!(is_by_destination(pauses.ruling(&ids[0], doubt, "403").await));
        assert_eq!(pauses.gate(), Gate::Closed);
        // So many in a row leave no doubt, however short the time.
        accept(&pauses);
        let unclear = (0..100).filter(|_| matches!(refuse(&pauses, &fresh()), Refusal::Unclear(_)));
        assert_eq!((unclear.count(), pauses.gate()), (DOUBTS_MAX, Gate::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_messages_are_tried_one_at_a_time_and_more_after_a_long_one() {
        let pauses = Pauses::new("a");
        assert!(is_by_destination(refuse(&pauses, &fresh())));
        let mut tried = Vec::new();
        for _ in 0..6 {
            assert_eq!(pauses.gate(), Gate::Closed);
            tokio::time::sleep(pauses.left().expect("a pause")).await;
            let mut probes = 0;
            while pauses.gate() == Gate::OneAtATime {
                let probe = pauses.enter().expect("one may be tried").expect("as a probe");
                assert!(pauses.enter().is_err(), "one at a time");
                assert!(is_by_destination(refuse(&pauses, &fresh())));
                drop(probe);
                probes += 1;
            }
            tried.push(probes);
        }
        let later = PROBES_LATER;
        assert_eq!(tried, [PROBES, PROBES, PROBES, later, later, later]);
        assert_eq!(pauses.left(), Some(PAUSE_CAP));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_was_refused_in_a_pause_fails_once_others_are_accepted() {
        let (pauses, bad) = (Pauses::new("a"), fresh());
        assert!(is_by_destination(refuse(&pauses, &bad)));
        tokio::time::sleep(PAUSE_FIRST).await;
        assert!(is_by_destination(refuse(&pauses, &bad)), "nothing was accepted since");
        accept(&pauses);
        assert_eq!((refuse(&pauses, &bad), pauses.gate()), (Refusal::Message, Gate::Open));
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_says_something_else_does_not_refuse_everything() {
        let pauses = Pauses::new("a");
        refuse(&pauses, &fresh());
        pauses.heard(&fresh(), &Outcome::retry("503"));
        assert_eq!(pauses.gate(), Gate::Closed, "the pause is kept");
        tokio::time::sleep(PAUSE_FIRST).await;
        pauses.heard(&fresh(), &Outcome::retry("503"));
        assert_eq!(pauses.gate(), Gate::Open);
    }
}
