//! Where a message stands.

use std::fmt;

/// The state of a message, as every tool shows it.
///
/// `PENDING → CLAIMED → SENT`; `CLAIMED → FAILED` (claimable again when due); `CLAIMED → DEAD`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, serde::Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Waits for its first attempt.
    Pending,
    /// A relay holds a claim on it. Never written to the message: it follows from the delivery.
    Claimed,
    /// Acknowledged by its sink.
    Sent,
    /// An attempt failed; the next one is scheduled.
    Failed,
    /// Will not be tried again unless someone redrives it.
    Dead,
}

impl Status {
    /// Every status, in the order of a message's life.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Claimed, Self::Sent, Self::Failed, Self::Dead];

    /// The name in SQL, metrics and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Claimed => "CLAIMED",
            Self::Sent => "SENT",
            Self::Failed => "FAILED",
            Self::Dead => "DEAD",
        }
    }

    /// The status with this name, in any case; `None` for one nobody knows.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
