//! From a sink's outcome to a message's fate.

use crate::settings::Lane;
use postroom_core::{Fate, Message, Outcome, announce_dead};
use rand::Rng;
use std::time::Duration;

/// The longest delay a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Decides what becomes of `message` after `outcome`. A refusal concerns the destination, so the
/// message goes back untouched.
pub(crate) fn judge(
    lane: &Lane,
    dead_letter: Option<&str>,
    message: &Message,
    outcome: Outcome,
    rng: &mut impl Rng,
) -> Fate {
    match outcome {
        Outcome::Delivered => Fate::Sent,
        Outcome::Refuse { .. } => Fate::Released,
        Outcome::Reject { error } => dead(dead_letter, message, error, true),
        Outcome::Retry { error, after } => {
            let failed = message.attempts.saturating_add(1);
            if lane.retry.is_exhausted(failed, message.max_attempts) {
                return dead(dead_letter, message, error, true);
            }
            let own = lane.retry.delay(failed, rng);
            let delay = after.map_or(own, |asked| own.max(asked.min(RETRY_AFTER_MAX)));
            Fate::Failed { delay, error }
        }
    }
}

/// A message that goes DEAD, announced unless it is an announcement itself.
pub(crate) fn dead(
    dead_letter: Option<&str>,
    message: &Message,
    error: String,
    attempted: bool,
) -> Fate {
    let attempts = message.attempts.saturating_add(u32::from(attempted));
    let announcement = dead_letter
        .filter(|integration| *integration != message.integration)
        .map(|integration| Box::new(announce_dead(message, &error, attempts, integration)));
    Fate::Dead { error, attempted, announcement }
}
