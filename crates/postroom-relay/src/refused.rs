//! Outcomes that the database refuses, as a constraint or a trigger of the table's owner may.
//!
//! Each is held with its message, and tried again at a growing pace: what is known is recorded once the database takes
//! it, and its receiver hears of it no second time. Their number is bounded by what their lanes may hold: a lane all of
//! whose outcomes are refused stops there.

use crate::completer::Completion;
use crate::jitter::Jitter;
use std::time::Duration;
use tokio::time::Instant;

/// The pause after the first refusal, which doubles with each that follows, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// What becomes of an outcome that the database refuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// It is held, and tried again.
    Held,
    /// It is given up, and its message is delivered again: whoever makes a pass wants it to end.
    GivenUp,
}

/// Outcomes that were refused, with when each is tried again.
#[derive(Default)]
pub(crate) struct Refused(Vec<(Instant, Completion)>);

impl Refused {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holds an outcome that was refused until its next try.
    pub(crate) fn hold(&mut self, mut completion: Completion, jitter: &Jitter) {
        let doubled = 1_u32.checked_shl(completion.refusals).unwrap_or(u32::MAX);
        let pause = PAUSE_FIRST.saturating_mul(doubled).min(PAUSE_LONGEST);
        completion.refusals = completion.refusals.saturating_add(1);
        self.0.push((Instant::now() + jitter.share(pause, 0.5), completion));
    }

    /// Takes out what is to be tried now: what is due, or everything.
    pub(crate) fn take(&mut self, all: bool) -> Vec<Completion> {
        let now = Instant::now();
        let is_due = |(due, _): &mut (Instant, Completion)| all || *due <= now;
        self.0.extract_if(.., is_due).map(|(_, completion)| completion).collect()
    }

    /// The database has taken one of them, so that it may take the others as well.
    pub(crate) fn hurry(&mut self) {
        let now = Instant::now();
        self.0.iter_mut().for_each(|(due, _)| *due = now);
    }
}
