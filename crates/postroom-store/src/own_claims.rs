//! What a heartbeat finds: the claims that name a relay, compared with those that it knows.

use postroom_core::Token;
use std::collections::HashSet;

/// What is in every relay's row, so that operators see who still runs what.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A take by a relay whose row is missing or has expired: its claims would be anybody's at once.
#[derive(Debug, thiserror::Error)]
#[error(
    "this relay's heartbeat is overdue, and claims would expire at once: send a heartbeat, then \
     take again"
)]
pub(crate) struct NoLivingRelay;

/// A relay's claims, as far as it and the database do not agree about them.
pub(crate) struct OwnClaims {
    /// Known to the relay, and not in the database.
    pub(crate) lost: Vec<Token>,
    /// Not known to the relay, and old: the reply to their take was lost, or the relay has forgotten
    /// them. A young one may have been taken this very moment.
    pub(crate) unrecognised: Vec<Token>,
}

impl OwnClaims {
    /// `found` are the claims that name the relay, and whether each is older than a claim time.
    pub(crate) fn compare(found: &[(Token, bool)], held: &[Token]) -> Self {
        let there: HashSet<&Token> = found.iter().map(|(token, _)| token).collect();
        let known: HashSet<&Token> = held.iter().collect();
        let unrecognised = found.iter().filter(|(token, is_old)| *is_old && !known.contains(token));
        Self {
            lost: held.iter().filter(|token| !there.contains(token)).copied().collect(),
            unrecognised: unrecognised.map(|(token, _)| *token).collect(),
        }
    }
}
