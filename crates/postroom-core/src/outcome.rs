//! What became of one attempt.

use std::time::Duration;

/// A sink's word on one message. The sink classifies, since it alone knows its protocol; the
/// relay decides when to try again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The receiver acknowledged it.
    Delivered,
    /// It may work later: the attempt counts, and the retry policy says when.
    Retry {
        /// Why, without payload or secrets.
        error: String,
        /// The receiver's own wish for the delay; the relay caps it.
        after: Option<Duration>,
    },
    /// This message will never be accepted: it goes DEAD.
    Reject {
        /// Why, without payload or secrets.
        error: String,
    },
    /// The destination's owner has given it up (HTTP 410): this message goes DEAD, and the lane
    /// pauses for long, so that the messages behind it do not follow.
    Gone {
        /// Why, and what the operator should do.
        error: String,
    },
    /// The destination refuses (credentials, a missing topic). When it refuses everything, the lane
    /// pauses and no attempt is used; while it accepts others, this is a failed attempt.
    Refuse {
        /// Why, and what the operator should do.
        error: String,
    },
}

impl Outcome {
    /// A retry at the time the policy says.
    pub fn retry(error: impl Into<String>) -> Self {
        Self::Retry { error: error.into(), after: None }
    }

    /// A rejection.
    pub fn reject(error: impl Into<String>) -> Self {
        Self::Reject { error: error.into() }
    }

    /// The end of a destination.
    pub fn gone(error: impl Into<String>) -> Self {
        Self::Gone { error: error.into() }
    }

    /// A refusal.
    pub fn refuse(error: impl Into<String>) -> Self {
        Self::Refuse { error: error.into() }
    }
}
