//! One relay's link to the store: slow, cut, silent, or failing after the work is done. It tells the
//! books of everything that reached the store, whether or not the relay learns of it.

use super::weather::{Call, Moment, Trouble};
use super::world::World;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Action, ActionId, Admin, Arrived, Attempt, Backlog, Batch, Checkpoint, Claims, Dispatched,
    Dispatches, Enqueued, ErrorGroup, Filter, Finding, Heartbeat, IdPrefix, Inspect, Intake, Key,
    MessageId, NewAction, NewMessage, Operate, Reconciled, Record, RelayId, RelayRow, Relays,
    Rescued, Settled, Settlement, Status, StatusCounts, StoreError, StoreErrorKind, StoreResult,
    Take, Token, Upkeep, Wake,
};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Link {
    pub(super) world: Arc<World>,
    /// Which process this is, and which relay of the plan.
    pub(super) process: usize,
    pub(super) relay: usize,
}

impl Link {
    /// Does `work` as the weather allows. The work itself never waits, so that the books and the
    /// store change together.
    async fn call<T>(
        &self,
        call: Call,
        work: impl AsyncFnOnce() -> StoreResult<T>,
    ) -> StoreResult<T> {
        let lot = self.world.weather.lot(self.relay, call);
        tokio::time::sleep(lot.delays[0]).await;
        let fails = async |when: Moment| match lot.trouble {
            Some((moment, Trouble::Error(kind))) if moment == when => {
                Err(StoreError::plain(kind, "the weather"))
            }
            Some((moment, Trouble::NeverAnswers)) if moment == when => {
                self.world.books.note("silence", Some(self.process));
                std::future::pending().await
            }
            _ => Ok(()),
        };
        fails(Moment::BeforeTheWork).await?;
        let answer = work().await?;
        self.world.check_ledger();
        tokio::time::sleep(lot.delays[1]).await;
        fails(Moment::AfterTheWork).await?;
        Ok(answer)
    }

    /// Tells the books what was taken, after the laws of the ledger.
    fn taken(
        &self,
        mut batches: Vec<Batch>,
        take: &Take<'_>,
        rescued: Option<Rescued>,
    ) -> Vec<Batch> {
        let now = self.world.now();
        self.world.check_take(&batches, take);
        for batch in &mut batches {
            self.world.books.taken(self.process, batch, take, rescued, now);
            // So that a destination can say under which claim it was asked.
            for taken in &mut batch.messages {
                taken.message.causation_id = Some(batch.token.0.to_string());
            }
        }
        batches
    }
}

#[async_trait]
impl Claims for Link {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        self.call(Call::Take, async || {
            Ok(self.taken(self.world.store.take(take).await?, take, None))
        })
        .await
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        self.call(Call::Take, async || {
            let batches = self.world.store.take_rescued(take, which).await?;
            Ok(self.taken(batches, take, Some(which)))
        })
        .await
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        let settled = self.call(Call::Settle, async || {
            let settled = self.world.store.settle(settlements).await?;
            let mut records = Vec::new();
            for verdict in settlements.iter().flat_map(|settlement| &settlement.verdicts) {
                records.extend(self.world.store.find(&verdict.id).await?);
            }
            self.world.books.settled(self.process, settlements, &settled, &records);
            Ok(settled)
        });
        let settled = settled.await;
        if settled.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Refused) {
            self.world.books.refused(settlements);
        }
        settled
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        self.world.store.keep_responses(responses).await
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.world.store.wake().await
    }
}

#[async_trait]
impl Relays for Link {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        let lost = self
            .call(Call::Beat, async || {
                let lost = self.world.store.beat(beat).await?;
                self.world.books.beaten(self.process, beat, &lost, self.world.now());
                Ok(lost)
            })
            .await?;
        self.world.books.told_lost(self.process, &lost);
        Ok(lost)
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        self.call(Call::Other, async || {
            self.world.store.leave(relay).await?;
            self.world.books.left(self.process, relay);
            Ok(())
        })
        .await
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        self.world.store.relays().await
    }
}

#[async_trait]
impl Upkeep for Link {
    async fn rescue_except(&self, relay: RelayId, _limit: usize) -> StoreResult<u64> {
        self.call(Call::Other, async || {
            // The books do not know in which order a store frees claims, so it frees all at once.
            let freed = self.world.store.rescue_except(relay, usize::MAX).await?;
            self.world.books.rescued(self.process, relay, freed, self.world.now());
            Ok(freed)
        })
        .await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        self.call(Call::Other, async || self.world.store.prune(older_than, limit).await).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.call(Call::Other, async || self.world.store.backlog().await).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.call(Call::Other, async || self.world.store.ready().await).await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        self.world.store.reconcile().await
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        self.world.store.diagnose().await
    }
}

/// A relay that delivers by itself has no use for these.
#[async_trait]
impl Dispatches for Link {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        self.world.store.dispatched(ids).await
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        self.world.store.reopen(claim, seqs).await
    }
}

/// Producers write to the store itself.
#[async_trait]
impl Intake for Link {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        self.world.store.accept(batch, checkpoint).await
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        self.world.store.checkpoint(name).await
    }
}

/// A relay has no use for these.
#[async_trait]
impl Admin for Link {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        self.world.store.find(id).await
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        self.world.store.attempts(id).await
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        self.world.store.list(filter).await
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        self.world.store.status_counts().await
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        self.world.store.integrations().await
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        self.world.store.claim_of(worker, id).await
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        Ok(self.world.now())
    }
}

#[async_trait]
impl Inspect for Link {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        self.world.store.find_prefix(prefix, limit).await
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        self.world.store.errors(filter).await
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        self.world.store.arrived(after).await
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        self.world.store.last_seq().await
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        self.world.store.upcoming(after, limit).await
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        self.world.store.states(seqs).await
    }
}

/// Nor for these.
#[async_trait]
impl Operate for Link {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        self.world.store.begin_action(action).await
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        self.world.store.actions(before, limit).await
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        self.world.store.note_action(action, messages).await
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.world.store.redrive(action, keys).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh: bool,
    ) -> StoreResult<Vec<MessageId>> {
        self.world.store.replay(action, keys, fresh).await
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.world.store.release(action, keys).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.world.store.cancel(action, keys).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        self.world.store.prune_on_record(action, status, older_than, limit).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        self.world.store.prunable(status, older_than).await
    }
}
