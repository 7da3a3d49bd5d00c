//! Keeps the claims of what is in queues, and notices jobs that are gone.

use super::faults::Who;
use super::finished_jobs::settle_finished_jobs;
use super::names::JobName;
use super::outstanding::OutstandingJobs;
use super::queues::Queues;
use super::settler::Settler;
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::{JobState, Queue};
use async_trait::async_trait;
use postroom_core::{Fence, Settlement, Token, with_causes};
use postroom_relay::Holder;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How many jobs are looked at in one go.
const LOOK_MAX: usize = 5_000;
/// How often claims that hold nothing any more are given up.
const END_EVERY: Duration = Duration::from_secs(1);
/// The claims of what is in queues, as the process's heartbeat knows them.
pub(crate) struct InQueues {
    pub(crate) outstanding: Arc<OutstandingJobs>,
    pub(crate) lanes: usize,
}

#[async_trait]
impl Holder for InQueues {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn held(&self) -> Vec<Token> {
        self.outstanding.claims()
    }

    async fn gone(&self, tokens: &[Token]) {
        // A claim that ended while the heartbeat was under way is gone too, but not lost.
        let still: HashSet<_> = self.outstanding.claims().into_iter().collect();
        let lost: Vec<_> = tokens.iter().filter(|one| still.contains(one)).copied().collect();
        if !lost.is_empty() {
            let claims = lost.len();
            tracing::warn!(claims, "claims on jobs expired; they are left to others");
            self.outstanding.lost(&lost);
        }
    }
}

/// Keeps every claim by the process's heartbeat.
pub(crate) async fn keep(shared: Arc<Shared>) {
    shared.presence.keep(&*shared.store, &shared.jitter).await;
}

/// Gives up claims whose messages were all settled by others.
pub(crate) async fn end(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(END_EVERY).await;
        let ended = shared.outstanding.take_ended();
        if ended.is_empty() {
            continue;
        }
        let settlements: Vec<Settlement> = ended
            .into_iter()
            .map(|token| Settlement {
                fence: Fence::Claim(token),
                verdicts: Vec::new(),
                finished: true,
            })
            .collect();
        // What is left here is given up by a later heartbeat.
        if let Err(error) = shared.store.settle(&settlements).await {
            tracing::debug!(error = with_causes(&error), "claims without messages stay for now");
        }
    }
}

/// Looks at every outstanding job, three times within a claim's time. One that is gone from Redis
/// without an event is dispatched again; one that has finished, and whose event was missed, is settled.
pub(crate) async fn sweep(shared: Arc<Shared>, settler: Settler, queues: Arc<Queues>) {
    let mut missing = HashSet::new();
    loop {
        tokio::time::sleep(shared.jitter.share(shared.interval(), 0.8)).await;
        let before = std::mem::take(&mut missing);
        let mut outstanding = shared.outstanding.by_queue();
        for queue in queues.all() {
            let names = outstanding.remove(queue.name()).unwrap_or_default();
            match look_through(&shared, &settler, &queue, &names, &before).await {
                Ok(gone) => {
                    missing.extend(gone);
                    shared.faults.end(queue.name(), Who::Sweep);
                }
                Err(error) => shared.redis_fails(queue.name(), Who::Sweep, &error),
            }
        }
    }
}

/// Returns the jobs that are missing for the first time: somebody may have completed them a moment
/// ago, and its completion event may still be in flight. Those that were missing before are gone.
async fn look_through(
    shared: &Shared,
    settler: &Settler,
    queue: &Queue,
    outstanding: &[JobName],
    before: &HashSet<JobName>,
) -> Result<Vec<JobName>, QueueError> {
    let mut missing = Vec::new();
    for part in outstanding.chunks(LOOK_MAX) {
        let ids: Vec<String> = part.iter().map(|name| name.id()).collect();
        let states = queue.states(&ids).await?;
        let mut found: Vec<(JobName, JobState)> = part.iter().cloned().zip(states).collect();
        found.retain(|(name, state)| {
            let is_new = *state == JobState::Gone && !before.contains(name);
            missing.extend(is_new.then(|| name.clone()));
            !is_new
        });
        queue.remove(&settle_finished_jobs(shared, settler, queue, &found).await?).await?;
    }
    Ok(missing)
}
