//! Deleting what is old.

use super::Finished;
use postroom_core::{NewAction, Operate, Operation, Status, StoreResult};
use std::pin::pin;
use std::time::Duration;

/// How many messages are deleted in one transaction.
const PRUNE_BATCH: usize = 1_000;

/// Deletes old messages, on record.
#[derive(Clone, Copy, Debug)]
pub struct Prune<'a> {
    /// Who asks for it.
    pub actor: &'a str,
    /// SENT or DEAD.
    pub status: Status,
    /// How long ago they became so.
    pub older_than: Duration,
}

impl Prune<'_> {
    /// How many messages it would delete now. Changes nothing, and is not on record.
    ///
    /// # Errors
    /// When the database is away, or the status is neither SENT nor DEAD.
    pub async fn count(&self, store: &dyn Operate) -> StoreResult<u64> {
        store.prunable(self.status, self.older_than).await
    }

    /// Deletes them in batches, until all are gone or `stop` is ready. `progress` is told the
    /// number of messages deleted so far, after each batch.
    ///
    /// # Errors
    /// When the database is away, or the status is neither SENT nor DEAD.
    pub async fn run(
        &self,
        store: &dyn Operate,
        stop: impl Future<Output = ()>,
        mut progress: impl FnMut(u64),
    ) -> StoreResult<Finished> {
        let target = format!("{}, older than {:?}", self.status, self.older_than);
        let action = NewAction { actor: self.actor, operation: Operation::Prune, target: &target };
        let action = store.begin_action(&action).await?;
        let mut stop = pin!(stop);
        let mut messages = 0;
        loop {
            let pruned =
                store.prune_on_record(action, self.status, self.older_than, PRUNE_BATCH).await?;
            messages += pruned;
            if pruned == 0 {
                return Ok(Finished { action, messages, locked: 0, is_stopped: false });
            }
            progress(messages);
            // Room for others between two batches, and for a stop.
            tokio::select! {
                biased;
                () = &mut stop => return Ok(Finished { action, messages, locked: 0, is_stopped: true }),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}
