//! What kind of outcome it is, for the tables of classified codes.

use postroom_core::Outcome;

/// An outcome without its words.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Class {
    Retry,
    Reject,
    Refuse,
    Gone,
}

impl Class {
    /// The class of a failure. What is final must come with a remedy, after a colon.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        if let Outcome::Reject { error } | Outcome::Refuse { error } = outcome {
            assert!(error.contains(": "), "no remedy in {error}");
        }
        match outcome {
            Outcome::Delivered => panic!("no failure is a delivery"),
            Outcome::Retry { .. } => Self::Retry,
            Outcome::Reject { .. } => Self::Reject,
            Outcome::Refuse { .. } => Self::Refuse,
            Outcome::Gone { .. } => Self::Gone,
        }
    }
}
