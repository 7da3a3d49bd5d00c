//! From a sink's outcome to a message's fate, whatever transport brought the message to the sink.

use crate::jitter::Jitter;
use postroom_core::{AttemptOutcome, Fate, Message, Outcome, RetryPolicy, Tried, announce_dead};
use std::any::Any;
use std::time::Duration;

/// The longest delay a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Decides what becomes of `message` after `outcome`. A refusal concerns the destination here, so the
/// message goes back untouched; where it concerns the message, [`Pauses`](crate::Pauses) makes a
/// retry of it.
#[must_use]
pub fn judge(
    retry: &RetryPolicy,
    dead_letter: Option<&str>,
    message: &Message,
    outcome: Outcome,
    took: Duration,
    jitter: &Jitter,
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
            if retry.is_exhausted(failed, message.max_attempts) {
                let tried = Tried { outcome: AttemptOutcome::Retry, took };
                return dead(dead_letter, message, error, Some(tried));
            }
            let own = jitter.draw(|rng| retry.delay(failed, rng));
            let delay = after.map_or(own, |asked| own.max(asked.min(RETRY_AFTER_MAX)));
            Fate::Failed { delay, error, took }
        }
    }
}

/// A message that goes DEAD, announced unless it is an announcement itself.
#[must_use]
pub fn dead(
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

/// Why a message whose sink panicked has failed.
#[must_use]
pub fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    format!("the sink panicked: {text}")
}

/// Why a message whose sink took too long has failed.
#[must_use]
pub fn unanswered(limit: Duration) -> String {
    format!("no answer within {limit:?}")
}

/// One line per message, with the fields that trace it and nothing of its content.
pub fn log_fate(message: &Message, fate: &Fate) {
    macro_rules! line {
        ($level:ident, $phase:literal, $error:expr) => {
            tracing::$level!(
                operation = "OUTBOX_DELIVER",
                phase = $phase,
                id = %message.id,
                event_id = message.event_id,
                integration = message.integration,
                correlation_id = message.correlation_id,
                tenant_id = message.tenant_id,
                user_id = message.user_id,
                source = message.source,
                attempts = message.attempts,
                error = $error,
            )
        };
    }
    match fate {
        Fate::Sent => line!(debug, "SENT", None::<&str>),
        Fate::Released | Fate::Postponed { .. } => line!(debug, "RELEASED", None::<&str>),
        Fate::Failed { error, .. } => line!(debug, "FAILED", Some(error.as_str())),
        Fate::Dead { error, .. } => line!(warn, "DEAD", Some(error.as_str())),
    }
}
