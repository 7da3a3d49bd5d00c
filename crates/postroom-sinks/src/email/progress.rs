//! Which recipients are through with a mail that others still wait for.

use lettre::Address;
use postroom_core::MessageId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many mails are remembered.
const MAILS_MAX: usize = 10_000;

/// What became of one mail so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// They have it.
    pub(super) accepted: Vec<Address>,
    /// They never will, each with the server's reply.
    pub(super) refused: Vec<(Address, String)>,
}

impl Progress {
    pub(super) fn is_through(&self, recipient: &Address) -> bool {
        self.accepted.contains(recipient)
            || self.refused.iter().any(|(refused, _)| refused == recipient)
    }
}

/// Mails that some recipients are through with, by the message's id. It is this process's own
/// memory: after a restart those who have the mail may get it again, with the same Message-ID.
#[derive(Default)]
pub(super) struct Mails(Mutex<Known>);

#[derive(Default)]
struct Known {
    mails: HashMap<MessageId, Progress>,
    /// Oldest first; ids that were forgotten since may still be in it.
    by_age: VecDeque<MessageId>,
}

impl Mails {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, id: &MessageId) -> Progress {
        self.known().mails.get(id).cloned().unwrap_or_default()
    }

    pub(super) fn remember(&self, id: &MessageId, progress: Progress) {
        let mut known = self.known();
        if known.mails.insert(id.clone(), progress).is_none() {
            known.by_age.push_back(id.clone());
        }
        while known.by_age.len() > MAILS_MAX {
            let Some(oldest) = known.by_age.pop_front() else { break };
            known.mails.remove(&oldest);
        }
    }

    pub(super) fn forget(&self, id: &MessageId) {
        self.known().mails.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn memory_is_bounded() {
        let mails = Mails::default();
        for n in 0..2 * MAILS_MAX as u128 {
            let id = Uuid::from_u128(n).into();
            mails.remember(&id, Progress::default());
            mails.remember(&id, Progress::default());
        }
        let known = mails.known();
        assert_eq!((known.mails.len(), known.by_age.len()), (MAILS_MAX, MAILS_MAX));
    }
}
