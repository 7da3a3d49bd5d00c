//! What was taken and becomes no job: put off, given back, failed or dead. That is recorded beside
//! the dispatcher, which goes on: a message that somebody else has locked holds up no lane.

use super::names::JobName;
use super::settler::{Ack, JobReport, Settler};
use super::shared::{CONFLICTS_AT_ONCE, Shared};
use postroom_core::{Fate, Fence, Settlement, StoreResult, Token, Verdict, with_causes};
use postroom_relay::Backoff;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// How many batches are recorded at the same time. One with a locked message keeps a connection to
/// the database for some seconds, and others need some too.
const TOGETHER_MAX: usize = 2;

/// Everything that is recorded beside the dispatcher.
pub(crate) struct Unqueued {
    recorder: Arc<Recorder>,
    /// In a set, which ends what it holds when this is dropped.
    tasks: Mutex<JoinSet<()>>,
}

struct Recorder {
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// Who may record a batch, and who one message of a batch that could not be recorded.
    together: Semaphore,
    alone: Semaphore,
}

/// How many messages of each lane are being recorded, or of none that is known here.
struct Counts {
    by_lane: Mutex<HashMap<Option<usize>, usize>>,
    /// No more than this is taken for a lane on top.
    most: usize,
    /// There is room again for a lane.
    freed: Notify,
}

/// One message that is being recorded, until this is dropped.
struct Unrecorded {
    lane: Option<usize>,
    counts: Arc<Counts>,
}

impl Unqueued {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let counts = Counts {
            by_lane: Mutex::default(),
            most: shared.settings.batch_size.max(1),
            freed: Notify::new(),
        };
        let recorder = Recorder {
            shared,
            counts: Arc::new(counts),
            together: Semaphore::new(TOGETHER_MAX),
            alone: Semaphore::new(1),
        };
        Self { recorder: Arc::new(recorder), tasks: Mutex::default() }
    }

    /// Records what becomes of messages of a claim, each of a lane; `finished` if that is all of the
    /// claim. What somebody else has locked, or the database refuses, is tried again and again until
    /// it is recorded or the claim is over: others of the same claim may keep that for long.
    pub(crate) fn settle(
        &self,
        token: Token,
        verdicts: Vec<(Option<usize>, Verdict)>,
        finished: bool,
    ) {
        let held = verdicts.into_iter().map(|(lane, verdict)| (verdict, self.hold(lane))).collect();
        let recorder = Arc::clone(&self.recorder);
        self.spawn(async move { recorder.settle(token, held, finished).await });
    }

    /// Reports on a dispatch that has no job. If the database refuses it there is neither,
    /// and nothing would bring the message back while its claim is kept: it is put off instead.
    pub(crate) fn report(&self, settler: &Settler, lane: usize, token: Token, report: JobReport) {
        let (settler, recorder) = (settler.clone(), Arc::clone(&self.recorder));
        let held = self.hold(Some(lane));
        self.spawn(async move {
            let (seq, id) = (report.message.seq, report.message.id.clone());
            let name = JobName { message: id.clone(), dispatch: report.dispatch };
            if settler.ask(report).await == Ack::Refused {
                recorder.shared.outstanding.settled(&name);
                let fate = Fate::Postponed { delay: recorder.shared.settings.claim_time };
                recorder.settle(token, vec![(Verdict { seq, id, fate }, held)], false).await;
            }
        });
    }

    /// Does something else that may have to wait for a message that is locked.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn(task);
    }

    /// Whether so much of a lane is being recorded that nothing more may be taken for it.
    pub(crate) fn is_full(&self, lane: usize) -> bool {
        let counts = &self.recorder.counts;
        let by_lane = counts.by_lane();
        // Mostly there is none.
        !by_lane.is_empty()
            && [Some(lane), None]
                .iter()
                .any(|lane| by_lane.get(lane).is_some_and(|held| *held >= counts.most))
    }

    /// Resolves when a lane was full and is not any more.
    pub(crate) async fn freed(&self) {
        self.recorder.counts.freed.notified().await;
    }

    /// Panics if one of its tasks has.
    pub(crate) fn check(&self) {
        let mut tasks = self.tasks();
        while let Some(ended) = tasks.try_join_next() {
            told(ended);
        }
    }

    /// Waits until everything is recorded.
    pub(crate) async fn drain(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks());
        while let Some(ended) = tasks.join_next().await {
            told(ended);
        }
    }

    fn hold(&self, lane: Option<usize>) -> Unrecorded {
        let counts = Arc::clone(&self.recorder.counts);
        *counts.by_lane().entry(lane).or_default() += 1;
        Unrecorded { lane, counts }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    async fn settle(&self, token: Token, mut left: Vec<(Verdict, Unrecorded)>, finished: bool) {
        let verdicts = left.iter().map(|(verdict, _)| verdict.clone()).collect();
        let all = self.record(&self.together, token, verdicts, finished, CONFLICTS_AT_ONCE);
        if let Ok(locked) = all.await {
            left.retain(|(verdict, _)| locked.contains(&verdict.seq));
        }
        if left.is_empty() {
            return;
        }
        let mut backoff = Backoff::new();
        loop {
            let mut again = Vec::new();
            let mut problem = None;
            for (verdict, held) in left {
                // The claim goes with the last of them.
                let alone = vec![verdict.clone()];
                problem = match self.record(&self.alone, token, alone, finished, 0).await {
                    Ok(locked) if locked.is_empty() => continue,
                    Ok(_) => Some("another transaction has locked them".to_owned()),
                    Err(error) => Some(with_causes(&error)),
                };
                again.push((verdict, held));
            }
            let Some(error) = problem else { return };
            left = again;
            tracing::warn!(
                messages = left.len(),
                error,
                "messages that were taken cannot be given back yet: somebody else has locked them, \
                 or the database refuses it"
            );
            tokio::time::sleep(backoff.pause(&self.shared.jitter)).await;
        }
    }

    /// Records verdicts in one transaction, once it is their turn; the numbers of messages that
    /// somebody else has locked.
    async fn record(
        &self,
        turns: &Semaphore,
        token: Token,
        verdicts: Vec<Verdict>,
        finished: bool,
        patience: u32,
    ) -> StoreResult<Vec<i64>> {
        // Never closed.
        let _turn = turns.acquire().await;
        let settlement = [Settlement { fence: Fence::Claim(token), verdicts, finished }];
        let settling = || self.shared.store.settle(&settlement);
        Ok(self.shared.retry_unless_locked(settling, Some(patience)).await?.locked)
    }
}

impl Counts {
    fn by_lane(&self) -> MutexGuard<'_, HashMap<Option<usize>, usize>> {
        self.by_lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        let mut by_lane = self.counts.by_lane();
        let Some(held) = by_lane.get_mut(&self.lane) else { return };
        *held -= 1;
        if *held == 0 {
            by_lane.remove(&self.lane);
        }
        let is_freed = by_lane.get(&self.lane).map_or(0, |held| *held) + 1 == self.counts.most;
        drop(by_lane);
        if is_freed {
            self.counts.freed.notify_one();
        }
    }
}

fn told(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}
