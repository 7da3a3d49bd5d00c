//! A store whose every call has a deadline.
//!
//! A database that is gone says so: its connections are reset or refused. One that is frozen, or a
//! connection whose other end forgot it, acknowledges every packet and never answers. Nothing below
//! this notices that, so a relay asks through a [`DeadlineStore`]. A call that misses its deadline
//! ends as [`StoreErrorKind::Unavailable`], and its connection is closed: that is what the stores do
//! with a call that is dropped half-way. What the call would have changed is unknown then, as after
//! a connection that was lost: a settlement is said again under its claim, and what a lost `take`
//! holds is given up by a later heartbeat.
//!
//! | calls | deadline |
//! |---|---|
//! | takes, settlements, heartbeats, rescues, lookups, the schema's version | [`Deadlines::answer`] |
//! | what writes new messages, announcements included | the same, and 5 ms for each |
//! | what counts or deletes many rows: backlog, statuses, pruning, lists | [`Deadlines::count`] |
//! | what looks through the whole outbox: reconciling and diagnosing | [`THROUGH_EVERYTHING`] |
//!
//! A migration has none: an index takes as long as its table is large. There every wait for a lock
//! has a limit instead.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Action, ActionId, Admin, Arrived, Attempt, Backlog, Batch, Checkpoint, Claims, Dispatched,
    Dispatches, Enqueued, ErrorGroup, Filter, Finding, Heartbeat, IdPrefix, Inspect, Intake, Key,
    MessageId, NewAction, NewMessage, Operate, Reconciled, Record, RelayId, RelayRow, Relays,
    Rescued, Settled, Settlement, Status, StatusCounts, Store, StoreError, StoreErrorKind,
    StoreResult, Take, Token, Upkeep, Vanished, Wake,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Looking through a billion messages takes about an hour.
const THROUGH_EVERYTHING: Duration = Duration::from_secs(6 * 60 * 60);

/// What a call may take longer for each message that it writes: one after the other, at worst.
const PER_MESSAGE: Duration = Duration::from_millis(5);

/// How long calls may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadlines {
    /// For what a relay does all the time, and what touches a bounded number of rows.
    pub answer: Duration,
    /// For what counts or deletes many rows.
    pub count: Duration,
}

impl Deadlines {
    /// Longer than a store waits for a lock (5 s), so that this comes back as a conflict.
    const ANSWER_MIN: Duration = Duration::from_secs(6);
    const ANSWER_MAX: Duration = Duration::from_secs(10);
    const COUNT: Duration = Duration::from_secs(60);

    /// The deadlines of a relay whose claims last so long: a third of that, and 6 to 10 seconds. A
    /// heartbeat comes when a third of the claims' time is over. If that misses its deadline, a third
    /// is left for another try on a fresh connection.
    #[must_use]
    pub fn of_a_relay(claim_time: Duration) -> Self {
        let answer = (claim_time / 3).clamp(Self::ANSWER_MIN, Self::ANSWER_MAX);
        Self { answer, count: Self::COUNT }
    }

    /// The deadlines of an operator's tools, who can end them and may have a long history.
    #[must_use]
    pub fn of_tools() -> Self {
        Self { answer: Duration::from_secs(60), count: Duration::from_secs(600) }
    }
}

/// A store whose every call has a deadline; it knows when the database answered last.
pub struct DeadlineStore {
    store: Arc<dyn Store>,
    deadlines: Deadlines,
    silence: Mutex<Silence>,
}

/// What the database owes an answer to.
#[derive(Debug, Default)]
struct Silence {
    /// Since when nothing that was asked has been answered.
    since: Option<Instant>,
    /// When the takes under way began, by their number. They wait for nobody's locks, so one that
    /// takes long has met silence, whatever other connections say.
    takes: BTreeMap<u64, Instant>,
    takes_begun: u64,
}

/// A take under way; it ends with the value, also when it is given up.
struct TakeUnderWay<'a> {
    store: &'a DeadlineStore,
    number: u64,
}

impl Drop for TakeUnderWay<'_> {
    fn drop(&mut self) {
        self.store.silence().takes.remove(&self.number);
    }
}

impl DeadlineStore {
    /// `store`, with deadlines.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, deadlines: Deadlines) -> Self {
        Self { store, deadlines, silence: Mutex::default() }
    }

    /// How long the database has left its callers without any answer, or a take without its own;
    /// `None` when it owes none. What it answered before says nothing about now.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        let silence = self.silence();
        let oldest_take = silence.takes.values().min().copied();
        let since = match (silence.since, oldest_take) {
            (Some(since), Some(take)) => Some(since.min(take)),
            (since, take) => since.or(take),
        };
        since.map(|since| since.elapsed())
    }

    /// For takes.
    async fn taken<T>(
        &self,
        doing: &str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let number = {
            let mut silence = self.silence();
            silence.takes_begun += 1;
            let number = silence.takes_begun;
            silence.takes.insert(number, Instant::now());
            number
        };
        let _under_way = TakeUnderWay { store: self, number };
        self.answer(doing, call).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        doing: &str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.silence().since.get_or_insert_with(Instant::now);
        let answer = limited(limit, doing, call).await;
        let is_answer = match answer.as_ref().map_err(|error| error.kind) {
            // Whatever else it is, it is an answer.
            Ok(_)
            | Err(StoreErrorKind::Conflict | StoreErrorKind::Schema | StoreErrorKind::Refused) => {
                true
            }
            Err(StoreErrorKind::Unavailable) => false,
        };
        if is_answer {
            self.silence().since = None;
        }
        answer
    }

    /// For what touches a bounded number of rows.
    async fn answer<T>(
        &self,
        doing: &str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.within(self.deadlines.answer, doing, call).await
    }

    /// For what counts or deletes many rows.
    async fn count<T>(
        &self,
        doing: &str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        self.within(self.deadlines.count, doing, call).await
    }

    /// For what counts or deletes many rows, and some stores answer without asking their database: that says
    /// nothing about its silence.
    async fn count_aside<T>(
        &self,
        doing: &str,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        limited(self.deadlines.count, doing, call).await
    }

    /// For what writes so many messages.
    fn writing(&self, messages: usize) -> Duration {
        let writing = PER_MESSAGE.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
        self.deadlines.answer.saturating_add(writing)
    }

    fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call answers, or that it did not in time.
async fn limited<T>(
    limit: Duration,
    doing: &str,
    call: impl Future<Output = StoreResult<T>>,
) -> StoreResult<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let context = format!(
            "{doing}: no answer from the database within {limit:?}; its connection is closed"
        );
        Err(StoreError::plain(StoreErrorKind::Unavailable, context))
    })
}

#[async_trait]
impl Intake for DeadlineStore {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        let limit = self.writing(batch.len());
        self.within(limit, "enqueueing", self.store.accept(batch, checkpoint)).await
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        self.answer("reading a checkpoint", self.store.checkpoint(name)).await
    }
}

#[async_trait]
impl Claims for DeadlineStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        self.taken("taking due messages", self.store.take(take)).await
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        self.taken("taking rescued messages", self.store.take_rescued(take, which)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        let verdicts = settlements.iter().flat_map(|settlement| &settlement.verdicts);
        let announced = verdicts.filter(|verdict| verdict.fate.is_announced()).count();
        let limit = self.writing(announced);
        self.within(limit, "recording outcomes", self.store.settle(settlements)).await
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        self.answer("keeping responses", self.store.keep_responses(responses)).await
    }

    fn vanished(&self) -> Vec<Vanished> {
        self.store.vanished()
    }

    /// Asks nothing of the database; who listens has deadlines of its own.
    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.store.wake().await
    }
}

#[async_trait]
impl Relays for DeadlineStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        self.answer("sending a heartbeat", self.store.beat(beat)).await
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        self.answer("ending a relay's row", self.store.leave(relay)).await
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        self.answer("listing relays", self.store.relays()).await
    }
}

#[async_trait]
impl Dispatches for DeadlineStore {
    async fn dispatched(&self, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
        self.answer("reading messages", self.store.dispatched(ids)).await
    }

    async fn reopen(&self, claim: Token, seqs: &[i64]) -> StoreResult<Vec<i64>> {
        self.answer("setting failed messages back to PENDING", self.store.reopen(claim, seqs)).await
    }
}

#[async_trait]
impl Upkeep for DeadlineStore {
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64> {
        self.answer("rescuing expired claims", self.store.rescue_except(relay, limit)).await
    }

    async fn record_sent(&self, noted_before: Duration, limit: usize) -> StoreResult<u64> {
        let recording = self.store.record_sent(noted_before, limit);
        self.count_aside("recording what was delivered", recording).await
    }

    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64> {
        self.count("pruning", self.store.prune(older_than, limit)).await
    }

    async fn backlog(&self) -> StoreResult<Backlog> {
        self.count("counting the backlog", self.store.backlog()).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.answer("reading the schema's version", self.store.ready()).await
    }

    async fn reconcile(&self) -> StoreResult<Reconciled> {
        self.within(THROUGH_EVERYTHING, "reconciling", self.store.reconcile()).await
    }

    async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        self.within(THROUGH_EVERYTHING, "diagnosing the outbox", self.store.diagnose()).await
    }

    async fn looks_restored(&self) -> StoreResult<bool> {
        self.count_aside("looking for a restore", self.store.looks_restored()).await
    }

    fn reconciles_at_start(&self) -> bool {
        self.store.reconciles_at_start()
    }
}

#[async_trait]
impl Admin for DeadlineStore {
    async fn find(&self, id: &MessageId) -> StoreResult<Option<Record>> {
        self.answer("looking for a message", self.store.find(id)).await
    }

    async fn attempts(&self, id: &MessageId) -> StoreResult<Vec<Attempt>> {
        self.answer("reading the attempts of a message", self.store.attempts(id)).await
    }

    async fn list(&self, filter: &Filter) -> StoreResult<Vec<Record>> {
        self.count("listing messages", self.store.list(filter)).await
    }

    async fn status_counts(&self) -> StoreResult<StatusCounts> {
        self.count("counting messages by status", self.store.status_counts()).await
    }

    async fn integrations(&self) -> StoreResult<Vec<String>> {
        self.count("listing integrations", self.store.integrations()).await
    }

    async fn claim_of(&self, worker: &str, id: &MessageId) -> StoreResult<Option<(Token, i64)>> {
        self.answer("looking for a claim", self.store.claim_of(worker, id)).await
    }

    async fn now(&self) -> StoreResult<DateTime<Utc>> {
        self.answer("reading the clock", self.store.now()).await
    }
}

#[async_trait]
impl Inspect for DeadlineStore {
    async fn find_prefix(&self, prefix: &IdPrefix, limit: usize) -> StoreResult<Vec<Record>> {
        self.answer("looking for a message", self.store.find_prefix(prefix, limit)).await
    }

    async fn errors(&self, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
        self.count("grouping messages by error", self.store.errors(filter)).await
    }

    async fn arrived(&self, after: i64) -> StoreResult<Vec<Arrived>> {
        self.count("counting new messages", self.store.arrived(after)).await
    }

    async fn last_seq(&self) -> StoreResult<i64> {
        self.answer("looking for the newest message", self.store.last_seq()).await
    }

    async fn upcoming(&self, after: i64, limit: usize) -> StoreResult<Vec<i64>> {
        self.count("looking for new messages", self.store.upcoming(after, limit)).await
    }

    async fn states(&self, seqs: &[i64]) -> StoreResult<Vec<Record>> {
        self.answer("reading messages", self.store.states(seqs)).await
    }
}

#[async_trait]
impl Operate for DeadlineStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        self.answer("putting an operation on record", self.store.begin_action(action)).await
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        self.answer("reading the record of operations", self.store.actions(before, limit)).await
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        let noted = self.store.note_action(action, messages);
        self.answer("adding to the record of an operation", noted).await
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.answer("redriving messages", self.store.redrive(action, keys)).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<MessageId>> {
        self.answer("replaying messages", self.store.replay(action, keys, fresh_ids)).await
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.answer("releasing messages", self.store.release(action, keys)).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.answer("cancelling messages", self.store.cancel(action, keys)).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let pruned = self.store.prune_on_record(action, status, older_than, limit);
        self.count("pruning", pruned).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        self.count("counting what can be pruned", self.store.prunable(status, older_than)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_core::SystemClock;
    use postroom_store::memory::MemoryStore;
    use std::pin::pin;

    /// Nothing is recorded later there, and nothing restored: both are said without a question.
    #[tokio::test(start_paused = true)]
    async fn what_a_store_answers_by_itself_does_not_end_a_silence() {
        let memory = MemoryStore::new(Arc::new(SystemClock));
        let store = DeadlineStore::new(Arc::new(memory), Deadlines::of_tools());
        let mut asked = pin!(store.answer("asking", std::future::pending::<StoreResult<()>>()));
        let silence = Duration::from_secs(9);
        tokio::time::timeout(silence, &mut asked).await.expect_err("nobody answers");
        store.record_sent(Duration::ZERO, 1).await.expect("nothing to record");
        store.looks_restored().await.expect("not restored");
        assert!(store.silent_for().is_some_and(|silent_for| silent_for >= silence));
        store.ready().await.expect("an answer");
        assert_eq!(store.silent_for(), None);
    }

    #[test]
    fn a_deadline_leaves_time_for_another_heartbeat() {
        let seconds = |claim| Deadlines::of_a_relay(Duration::from_secs(claim)).answer.as_secs();
        assert_eq!([2, 18, 24, 30, 300].map(seconds), [6, 6, 8, 10, 10]);
        for claim_time in [18, 24, 30, 60, 300].map(Duration::from_secs) {
            // Asked after a third of its time at the latest.
            let missed_at = claim_time / 3 + Deadlines::of_a_relay(claim_time).answer;
            assert!(claim_time - missed_at >= claim_time / 3, "{claim_time:?}");
        }
    }
}
