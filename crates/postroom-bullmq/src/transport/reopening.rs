//! Sets messages that have failed before back to PENDING, before their next job is added.
//!
//! A row that says FAILED once its job has ended was then marked by that job's worker, and not by an
//! attempt before: see `marked.rs`. A job that is there already is not added again, and what its
//! worker may have written since is not erased.

use super::names::JobName;
use super::shared::{CONFLICTS_AT_ONCE, Shared};
use crate::error::QueueError;
use crate::queue::{JobState, Queue};
use postroom_core::{Taken, Token, with_causes};
use std::collections::HashSet;

/// What is known of messages that are about to become jobs.
#[derive(Debug, Default)]
pub(crate) struct Reopened {
    /// Jobs that are there already, in whatever state.
    pub(crate) existing: HashSet<JobName>,
    /// Jobs that were not there, whose messages are PENDING again.
    pub(crate) reopened: HashSet<JobName>,
    /// Messages that could not be set back, by `seq`: somebody else has locked them.
    pub(crate) locked: HashSet<i64>,
}

/// Sets those of these messages back that have failed before. Fails when Redis does not answer.
pub(crate) async fn reopen(
    shared: &Shared,
    token: Token,
    queue: &Queue,
    messages: &[Taken],
) -> Result<Reopened, QueueError> {
    let again = |taken: &&Taken| taken.dispatch > 1 || taken.message.attempts > 0;
    let again: Vec<(JobName, i64)> = messages
        .iter()
        .filter(again)
        .map(|taken| (JobName::of(taken), taken.message.seq))
        .collect();
    if again.is_empty() {
        return Ok(Reopened::default());
    }
    let ids: Vec<String> = again.iter().map(|(name, _)| name.id()).collect();
    let states = queue.states(&ids).await?;
    let is_there = |(_, state): &(&(JobName, i64), JobState)| *state != JobState::Gone;
    let (existing, missing): (Vec<_>, Vec<_>) = again.iter().zip(states).partition(is_there);
    let seqs: Vec<i64> = missing.iter().map(|((_, seq), _)| *seq).collect();
    let locked =
        if seqs.is_empty() { HashSet::new() } else { set_back(shared, token, &seqs).await };
    let is_free = |(name, seq): &(JobName, i64)| (!locked.contains(seq)).then(|| name.clone());
    Ok(Reopened {
        existing: existing.into_iter().map(|((name, _), _)| name.clone()).collect(),
        reopened: missing.into_iter().filter_map(|(one, _)| is_free(one)).collect(),
        locked,
    })
}

/// Sets messages back; those that this could not be done to.
async fn set_back(shared: &Shared, token: Token, seqs: &[i64]) -> HashSet<i64> {
    let reopen = || shared.store.reopen(token, seqs);
    match shared.retry_unless_locked(reopen, Some(CONFLICTS_AT_ONCE)).await {
        Ok(locked) => locked.into_iter().collect(),
        Err(error) => {
            let error = with_causes(&error);
            tracing::warn!(
                messages = seqs.len(),
                error,
                "messages that failed cannot be set back to PENDING now: they are dispatched later"
            );
            seqs.iter().copied().collect()
        }
    }
}
