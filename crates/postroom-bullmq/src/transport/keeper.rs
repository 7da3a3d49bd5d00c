//! Keeps the claims of what is in queues, and notices jobs that are gone.

use super::conclude::conclude;
use super::faults::Who;
use super::names::JobName;
use super::queues::Queues;
use super::settler::Settler;
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::{JobState, Queue};
use postroom_core::{Fence, Settlement, with_causes};
use postroom_relay::Settings;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How many jobs are looked at in one go.
const LOOK_MAX: usize = 5_000;
/// How often claims that hold nothing any more are given up.
const END_EVERY: Duration = Duration::from_secs(1);
/// How soon a lease that could not be kept is tried again, at the least.
const KEEP_AGAIN_MIN: Duration = Duration::from_millis(200);

/// Keeps every claim by this relay's lease, which is extended three times within its time. While
/// there is nothing to keep there is no lease.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let Settings { worker, claim_time, .. } = &shared.settings;
    let mut has_lease = false;
    let mut pause = shared.interval();
    loop {
        tokio::time::sleep(shared.chance.share(pause, 0.8)).await;
        pause = shared.interval();
        let claims = shared.books.claims();
        if claims.is_empty() && !has_lease {
            continue;
        }
        match shared.store.keep(shared.lease, worker, &claims, *claim_time).await {
            Ok(gone) => {
                has_lease = !claims.is_empty();
                // A claim that ended while the call ran is gone too, but not lost.
                let still: HashSet<_> = shared.books.claims().into_iter().collect();
                let lost: Vec<_> = gone.into_iter().filter(|one| still.contains(one)).collect();
                if !lost.is_empty() {
                    let claims = lost.len();
                    tracing::warn!(claims, "claims on jobs expired; they are left to others");
                    shared.books.lost(&lost);
                }
            }
            Err(error) => {
                tracing::debug!(error = with_causes(&error), "claims were not extended");
                // Soon: they are running out.
                pause = (*claim_time / 20).max(KEEP_AGAIN_MIN);
            }
        }
    }
}

/// Ends the lease of a relay that stops: another need not wait for its end before it looks after the
/// jobs that are left.
pub(crate) async fn let_go(shared: &Shared) {
    let Settings { worker, claim_time, .. } = &shared.settings;
    if let Err(error) = shared.store.keep(shared.lease, worker, &[], *claim_time).await {
        tracing::debug!(error = with_causes(&error), "the lease stays until it expires");
    }
}

/// Gives up claims whose messages were all settled by others.
pub(crate) async fn end(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(END_EVERY).await;
        let ended = shared.books.take_ended();
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
        // What is left here expires by itself.
        if let Err(error) = shared.store.settle(&settlements).await {
            tracing::debug!(error = with_causes(&error), "claims without messages stay for now");
        }
    }
}

/// Looks at every outstanding job, three times within a claim's time. One that is gone from Redis
/// without a word is dispatched again; one that has finished, and whose word was missed, is settled.
pub(crate) async fn sweep(shared: Arc<Shared>, settler: Settler, queues: Arc<Queues>) {
    let mut missing = HashSet::new();
    loop {
        tokio::time::sleep(shared.chance.share(shared.interval(), 0.8)).await;
        let before = std::mem::take(&mut missing);
        let mut outstanding = shared.books.by_queue();
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
/// ago, and the word of it is on its way. Those that were missing before are gone.
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
        let mut found: Vec<(JobName, JobState)> = part.iter().copied().zip(states).collect();
        found.retain(|(name, state)| {
            let is_new = *state == JobState::Gone && !before.contains(name);
            missing.extend(is_new.then_some(*name));
            !is_new
        });
        queue.remove(&conclude(shared, settler, queue, &found).await?).await?;
    }
    Ok(missing)
}
