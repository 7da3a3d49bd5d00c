//! An outbox whose database answers as a test wants it to.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Action, ActionId, Admin, Arrived, Attempt, Backlog, Batch, Checkpoint, Claims, Dispatched,
    Dispatches, Enqueued, ErrorGroup, Filter, Finding, Heartbeat, IdPrefix, Inspect, Intake, Key,
    MessageId, NewAction, NewMessage, Operate, Reconciled, Record, RelayId, RelayRow, Relays,
    Rescued, Settled, Settlement, Status, StatusCounts, Store, StoreError, StoreErrorKind,
    StoreResult, Take, Token, Upkeep, Wake,
};
use std::sync::Arc;
use std::time::Duration;

/// What the transport asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    Take,
    TakeRescued,
    Settle(&'a [Settlement]),
    Beat(&'a [Token]),
    Dispatched(&'a [MessageId]),
    Reopen,
}

impl Call<'_> {
    /// Whether it is a word on this message.
    pub(crate) fn settles(&self, id: &MessageId) -> bool {
        let Self::Settle(settlements) = self else { return false };
        settlements.iter().flat_map(|one| &one.verdicts).any(|verdict| verdict.id == *id)
    }
}

/// What comes before each call: it may fail instead, or panic.
type Fault = dyn Fn(Call<'_>) -> StoreResult<()> + Send + Sync;

struct Faulty {
    inner: Arc<dyn Store>,
    fault: Box<Fault>,
}

/// The same store, with `fault` before each call.
pub(crate) fn faulty(
    inner: Arc<dyn Store>,
    fault: impl Fn(Call<'_>) -> StoreResult<()> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    Arc::new(Faulty { inner, fault: Box::new(fault) })
}

pub(crate) fn refused() -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, "as the test asks")
}

#[async_trait]
impl Claims for Faulty {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        (self.fault)(Call::Take)?;
        self.inner.take(take).await
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        (self.fault)(Call::TakeRescued)?;
        self.inner.take_rescued(take, which).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        (self.fault)(Call::Settle(settlements))?;
        self.inner.settle(settlements).await
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        self.inner.keep_responses(responses).await
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.inner.wake().await
    }
}

#[async_trait]
impl Relays for Faulty {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        (self.fault)(Call::Beat(beat.held))?;
        self.inner.beat(beat).await
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        self.inner.leave(relay).await
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        self.inner.relays().await
    }
}

#[async_trait]
impl Dispatches for Faulty {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        (self.fault)(Call::Dispatched(ids))?;
        self.inner.dispatched(ids).await
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        (self.fault)(Call::Reopen)?;
        self.inner.reopen(claim, seqs).await
    }
}

#[async_trait]
impl Upkeep for Faulty {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        self.inner.rescue_except(relay, limit).await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        self.inner.prune(older_than, limit).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.inner.backlog().await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        self.inner.reconcile().await
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        self.inner.diagnose().await
    }
}

#[async_trait]
impl Intake for Faulty {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        self.inner.accept(batch, checkpoint).await
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        self.inner.checkpoint(name).await
    }
}

#[async_trait]
impl Admin for Faulty {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        self.inner.find(id).await
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        self.inner.attempts(id).await
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        self.inner.list(filter).await
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        self.inner.status_counts().await
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        self.inner.integrations().await
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        self.inner.claim_of(worker, id).await
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        self.inner.now().await
    }
}

#[async_trait]
impl Inspect for Faulty {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        self.inner.find_prefix(prefix, limit).await
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        self.inner.errors(filter).await
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        self.inner.arrived(after).await
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        self.inner.last_seq().await
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        self.inner.upcoming(after, limit).await
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        self.inner.states(seqs).await
    }
}

/// The transport has no use for these.
#[async_trait]
impl Operate for Faulty {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        self.inner.begin_action(action).await
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        self.inner.actions(before, limit).await
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        self.inner.note_action(action, messages).await
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.inner.redrive(action, keys).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh: bool,
    ) -> StoreResult<Vec<MessageId>> {
        self.inner.replay(action, keys, fresh).await
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.inner.release(action, keys).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.inner.cancel(action, keys).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        self.inner.prune_on_record(action, status, older_than, limit).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        self.inner.prunable(status, older_than).await
    }
}
