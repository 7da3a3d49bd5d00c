//! The seam to whatever receives messages.

use crate::{Message, Outcome};
use async_trait::async_trait;

/// Delivers to one destination.
///
/// # Contract
/// * Delivery is at least once: the same event id can arrive again, and the receiver must be
///   able to recognise it.
/// * [`deliver`](Sink::deliver) reports one outcome per message, as each is known. What it has
///   reported stands, even if it then panics, times out or is dropped; what it has not reported
///   counts as a failed attempt.
/// * [`Outcome::Delivered`] is reported only once the receiver has acknowledged.
/// * An error text holds no payload, no secret and no personal datum.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Delivers a batch, in order.
    async fn deliver(&self, batch: &[Message], report: &Report<'_>);

    /// The most messages one call may carry; the lane never passes more.
    fn batch_max(&self) -> usize {
        usize::MAX
    }

    /// Checks that the destination can be reached, without delivering anything.
    ///
    /// # Errors
    /// What is wrong, for `postroom check`.
    async fn probe(&self) -> Result<(), ProbeError> {
        Ok(())
    }
}

/// Why a destination cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProbeError(pub String);

impl From<Outcome> for ProbeError {
    /// What would keep a delivery from being made.
    fn from(outcome: Outcome) -> Self {
        Self(match outcome {
            Outcome::Delivered => "nothing is wrong".to_owned(),
            Outcome::Retry { error, .. }
            | Outcome::Reject { error }
            | Outcome::Refuse { error }
            | Outcome::Gone { error } => error,
        })
    }
}

/// Takes outcomes as they become known.
pub trait OutcomeReceiver: Send + Sync {
    /// The outcome of the message at `index` of the batch. Only the first word on a message
    /// counts.
    fn outcome(&self, index: usize, outcome: Outcome);

    /// What the receiver answered, to be kept with the failed attempt of the message at `index`.
    /// Comes before its outcome. It may hold anything, so it is never logged.
    fn response(&self, index: usize, response: String) {
        let _ = (index, response);
    }
}

/// Where a sink reports to during one [`Sink::deliver`].
pub struct Report<'a> {
    receiver: &'a dyn OutcomeReceiver,
    offset: usize,
}

impl<'a> Report<'a> {
    /// A report that passes everything to `receiver`.
    #[must_use]
    pub fn new(receiver: &'a dyn OutcomeReceiver) -> Self {
        Self { receiver, offset: 0 }
    }

    /// A report for a part of the batch that begins at `offset`, for sinks that wrap others.
    #[must_use]
    pub fn part(&self, offset: usize) -> Report<'a> {
        Report { receiver: self.receiver, offset: self.offset + offset }
    }

    /// States the outcome of the message at `index`.
    pub fn outcome(&self, index: usize, outcome: Outcome) {
        self.receiver.outcome(self.offset + index, outcome);
    }

    /// Hands over what the receiver answered to the message at `index`, before its outcome: for
    /// sinks that were asked to keep the responses of failed attempts.
    pub fn response(&self, index: usize, response: String) {
        self.receiver.response(self.offset + index, response);
    }

    /// States that the message at `index` was acknowledged.
    pub fn delivered(&self, index: usize) {
        self.outcome(index, Outcome::Delivered);
    }
}
