//! What a lease keeps, beside what its relay knows of.

use postroom_core::Token;
use std::collections::HashSet;

/// The claims that a relay knows, beside those that are there under its lease.
pub(crate) struct Known {
    /// Known, and not there.
    pub(crate) lost: Vec<Token>,
    /// Not known, and kept by the lease alone: their taker never heard of them, or has forgotten
    /// them. One that is within its own time may have been taken this very moment.
    pub(crate) strange: Vec<Token>,
}

impl Known {
    /// `found` are the claims under the lease, and whether the own time of each is over.
    pub(crate) fn among(found: &[(Token, bool)], claims: &[Token]) -> Self {
        let there: HashSet<&Token> = found.iter().map(|(token, _)| token).collect();
        let lost = claims.iter().filter(|token| !there.contains(token)).copied().collect();
        let known: HashSet<&Token> = claims.iter().collect();
        let strange = found.iter().filter(|(token, is_over)| *is_over && !known.contains(token));
        Self { lost, strange: strange.map(|(token, _)| *token).collect() }
    }
}
