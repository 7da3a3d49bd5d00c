//! How a message is named here: by its number, and by its id, which is a uuid in these tables.

use postroom_core::{MessageId, Verdict};
use uuid::Uuid;

/// One message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) seq: i64,
    pub(super) id: Uuid,
}

impl Key {
    fn new(seq: i64, id: &MessageId) -> Option<Self> {
        Some(Self { seq, id: id.as_uuid()? })
    }

    /// The message that a verdict is on; `None` when its id is no uuid, so that it is none of these.
    pub(super) fn judged(verdict: &Verdict) -> Option<Self> {
        Self::new(verdict.seq, &verdict.id)
    }

    /// The messages that an operation names. What has no uuid is none of these.
    pub(super) fn all(keys: &[postroom_core::Key]) -> Vec<Self> {
        keys.iter().filter_map(|key| Self::new(key.seq, &key.id)).collect()
    }
}
