//! From a sink's outcome to a message's fate.

use crate::chance::Chance;
use crate::settings::Lane;
use postroom_core::{AttemptOutcome, Fate, Message, Outcome, Tried, announce_dead};
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
    took: Duration,
    chance: &Chance,
) -> Fate {
    match outcome {
        Outcome::Delivered => Fate::Sent,
        Outcome::Refuse { .. } => Fate::Released,
        Outcome::Reject { error } | Outcome::Gone { error } => {
            let tried = Tried { outcome: AttemptOutcome::Reject, took };
            dead(dead_letter, message, error, Some(tried))
        }
        Outcome::Retry { error, after } => {
            let failed = message.attempts.saturating_add(1);
            if lane.retry.is_exhausted(failed, message.max_attempts) {
                let tried = Tried { outcome: AttemptOutcome::Retry, took };
                return dead(dead_letter, message, error, Some(tried));
            }
            let own = chance.draw(|rng| lane.retry.delay(failed, rng));
            let delay = after.map_or(own, |asked| own.max(asked.min(RETRY_AFTER_MAX)));
            Fate::Failed { delay, error, took }
        }
    }
}

/// A message that goes DEAD, announced unless it is an announcement itself.
pub(crate) fn dead(
    dead_letter: Option<&str>,
    message: &Message,
    error: String,
    tried: Option<Tried>,
) -> Fate {
    let attempts = message.attempts.saturating_add(u32::from(tried.is_some()));
    let announcement = dead_letter
        .filter(|integration| *integration != message.integration)
        .map(|integration| Box::new(announce_dead(message, &error, attempts, integration)));
    Fate::Dead { error, tried, announcement }
}
