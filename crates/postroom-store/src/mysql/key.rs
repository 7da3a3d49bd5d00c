//! How a message is named here: by its number, and by a uuid. That is its id, or made of it where somebody else made
//! the table.

use super::layout::ledger_id;
use postroom_core::Verdict;
use uuid::Uuid;

/// One message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) seq: i64,
    pub(super) id: Uuid,
}

impl Key {
    /// The message that a verdict is on.
    pub(super) fn judged(verdict: &Verdict) -> Self {
        Self { seq: verdict.seq, id: ledger_id(&verdict.id) }
    }

    /// The messages that an operation names.
    pub(super) fn all(keys: &[postroom_core::Key]) -> Vec<Self> {
        keys.iter().map(|key| Self { seq: key.seq, id: ledger_id(&key.id) }).collect()
    }
}
