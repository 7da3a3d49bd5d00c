//! Looking after a log: checking, repairing, backing up, scavenging.

mod backup;
mod check;
mod repair;
mod scavenge;

pub use backup::{BackedUp, BackupError, backup};
pub use check::{Checked, DamageFound, check};
#[cfg(test)]
pub(crate) use repair::repair_on;
pub use repair::{Repaired, repair};
pub use scavenge::Scavenged;
pub(crate) use scavenge::Scavenger;
