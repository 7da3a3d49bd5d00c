//! What an operator does to messages: to one, or to all that a filter finds, in batches and at a
//! pace.
//!
//! Each call is one action on record, under the name of who asked for it. What is changed and its
//! record are committed together, batch by batch: an operation that is stopped or killed half-way
//! has done what its record says, and can be said again.

mod change;
mod filtered;
mod prune;
mod throttle;

pub use change::{Change, Changed, change_one};
pub use filtered::Bulk;
pub use prune::Prune;

use postroom_core::ActionId;

/// How many messages are looked at, and changed in one transaction, at a time.
const BATCH: usize = 200;

/// How an operation over many messages ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Finished {
    /// Its record.
    pub action: ActionId,
    /// How many messages it changed.
    pub messages: u64,
    /// How many it left alone, since another session holds a lock on them.
    pub locked: u64,
    /// Whether it was stopped before it was through.
    pub is_stopped: bool,
}
