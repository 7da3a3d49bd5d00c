//! Rules that this store breaks when a test asks for it, so that the test can tell whether its checks
//! would notice.

use super::MemoryStore;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// A settlement counts whoever holds the message.
    SettlesWithoutFence,
    /// A sweep takes parcels that a claim names.
    SweepIgnoresClaims,
}

impl MemoryStore {
    /// The same outbox, which breaks a rule from now on.
    #[must_use]
    pub fn with_flaw(self, flaw: Flaw) -> Self {
        self.lock().flaw = Some(flaw);
        self
    }
}
