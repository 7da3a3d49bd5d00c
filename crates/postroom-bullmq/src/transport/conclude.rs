//! Settles dispatches by what is seen of their jobs.

use super::names::JobName;
use super::reader::dispatched;
use super::settler::{Settler, Word};
use super::shared::Shared;
use crate::queue::JobState;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use postroom_core::{Fate, Outcome};
use postroom_relay::{JobOutcome, judge};
use std::time::Duration;
use uuid::Uuid;

/// Records what jobs say that have finished or gone: completed is SENT, failed is a failed attempt
/// with its reason, gone is nothing but the end of the dispatch. Returns the ids of finished jobs
/// that nobody needs any more. What is not of this outbox is left alone, and so is a job that
/// waits or runs.
pub(crate) async fn conclude(
    shared: &Shared,
    settler: &Settler,
    lane: usize,
    found: &[(JobName, JobState)],
) -> Vec<String> {
    let over: Vec<&(JobName, JobState)> =
        found.iter().filter(|(_, state)| *state != JobState::Live).collect();
    if over.is_empty() {
        return Vec::new();
    }
    let ids: Vec<Uuid> = over.iter().map(|(name, _)| name.message).collect();
    let open = dispatched(shared, &ids).await;
    let mut words = Vec::new();
    let mut gone = 0;
    for (name, state) in &over {
        match open.get(&name.message) {
            Some(counts) if counts.number == name.dispatch => {
                gone += u64::from(*state == JobState::Gone);
                let Some(fate) = fate(shared, lane, &counts.message, state) else { continue };
                let message = counts.message.clone();
                words.push(settler.ask(Word { message, dispatch: name.dispatch, fate }).boxed());
            }
            // Settled before, by whoever delivered it.
            _ => shared.books.settled(*name),
        }
    }
    join_all(words).await;
    if gone > 0 {
        let integration = &shared.lanes[lane].lane.integration;
        shared.metrics.jobs(integration, JobOutcome::GONE, gone);
        tracing::warn!(
            operation = "OUTBOX_ENQUEUE_JOB",
            phase = "FAILED",
            integration,
            jobs = gone,
            "jobs are gone from Redis without a word: their messages are dispatched again"
        );
    }
    let mut finished = Vec::new();
    let mut doubtful = Vec::new();
    for (name, state) in over {
        match state {
            JobState::Completed | JobState::Failed { .. } if open.contains_key(&name.message) => {
                finished.push(name.id());
            }
            JobState::Completed | JobState::Failed { .. } => {
                let look = async move { is_ours(shared, name.message).await.then(|| name.id()) };
                doubtful.push(look.boxed());
            }
            JobState::Gone | JobState::Live => {}
        }
    }
    finished.extend(join_all(doubtful).await.into_iter().flatten());
    finished
}

fn fate(
    shared: &Shared,
    lane: usize,
    message: &postroom_core::Message,
    state: &JobState,
) -> Option<Fate> {
    let outcome = match state {
        JobState::Live => return None,
        JobState::Gone => return Some(Fate::Released),
        JobState::Completed => Outcome::Delivered,
        JobState::Failed { reason, unrecoverable: true } => Outcome::reject(reason.clone()),
        JobState::Failed { reason, unrecoverable: false } => Outcome::retry(reason.clone()),
    };
    let retry = &shared.lanes[lane].lane.retry;
    let dead_letter = shared.settings.dead_letter.as_deref();
    // How long it took is not known here.
    Some(judge(retry, dead_letter, message, outcome, Duration::ZERO, &shared.chance))
}

/// Whether a job whose message has nothing to be delivered came from this outbox.
async fn is_ours(shared: &Shared, id: Uuid) -> bool {
    let found = shared.insist(|| shared.store.find(id)).await;
    matches!(found, Ok(Some(_)))
}
