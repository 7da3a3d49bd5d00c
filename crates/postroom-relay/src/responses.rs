//! What receivers answered to failed attempts, on its way to the outbox.
//!
//! It is recorded right after the attempt itself, by a statement of its own: what no integration
//! asked for costs nothing. A relay that is killed between the two loses a response, never an
//! attempt.

use crate::background::upkeep_failed;
use postroom_core::{Claims, Fate, MessageId, Settled, Settlement};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Responses to messages whose outcome is not recorded yet: at most one for each in flight.
#[derive(Debug, Default)]
pub(crate) struct Responses(Mutex<HashMap<MessageId, String>>);

impl Responses {
    pub(crate) fn put(&self, id: MessageId, response: String) {
        self.held().insert(id, response);
    }

    /// Takes those of attempts that were recorded. What did not fail, or came too late, has nothing
    /// to keep; outcomes that wait for a lock keep theirs here until they are recorded.
    pub(crate) fn take(
        &self,
        settlements: &[Settlement],
        settled: &Settled,
    ) -> Vec<(MessageId, String)> {
        let mut held = self.held();
        if held.is_empty() {
            return Vec::new();
        }
        let verdicts = settlements.iter().flat_map(|settlement| &settlement.verdicts);
        let mut taken = Vec::new();
        for verdict in verdicts.filter(|verdict| !settled.locked.contains(&verdict.seq)) {
            let Some(response) = held.remove(&verdict.id) else { continue };
            match verdict.fate {
                Fate::Failed { .. } | Fate::Dead { .. } if !settled.late.contains(&verdict.seq) => {
                    taken.push((verdict.id.clone(), response));
                }
                Fate::Failed { .. }
                | Fate::Dead { .. }
                | Fate::Sent
                | Fate::Released
                | Fate::Postponed { .. } => {}
            }
        }
        taken
    }

    /// Drops those of messages whose outcome is not recorded after all.
    pub(crate) fn forget<'a>(&self, ids: impl Iterator<Item = &'a MessageId>) {
        let mut held = self.held();
        if !held.is_empty() {
            ids.for_each(|id| drop(held.remove(id)));
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<MessageId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps responses with their attempts. The outbox goes on without those it cannot keep.
pub async fn keep_responses(store: &dyn Claims, responses: &[(MessageId, String)]) {
    if responses.is_empty() {
        return;
    }
    if let Err(error) = store.keep_responses(responses).await {
        upkeep_failed("keeping responses", &error);
    }
}
