//! Outcomes that could not be recorded at once: their messages are locked by another transaction,
//! or the database refuses one of them.
//!
//! One task records all of them, so that they use one connection however many they are. Their
//! number is bounded by what their lanes may hold: such a lane fills up, and the others go on.

use crate::completer::{CONFLICT_LONG, Completion, Group, SETTLE_MAX, settle_with_retry};
use crate::relay::Shared;
use crate::stop::Stop;
use postroom_core::{StoreError, StoreErrorKind, with_causes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often they are tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// How often the operator is told that some are waiting.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Where completers leave outcomes.
#[derive(Clone)]
pub(crate) struct SetAside(mpsc::UnboundedSender<Vec<Completion>>);

/// Where the outcomes arrive.
pub(crate) type Arrivals = mpsc::UnboundedReceiver<Vec<Completion>>;

pub(crate) fn set_aside() -> (SetAside, Arrivals) {
    // Unbounded by type, bounded by what lanes may hold.
    let (sender, arrivals) = mpsc::unbounded_channel();
    (SetAside(sender), arrivals)
}

impl SetAside {
    pub(crate) fn put(&self, completions: Vec<Completion>) {
        if !completions.is_empty() {
            // The other side ends only after every completer.
            let _ = self.0.send(completions);
        }
    }
}

/// Runs until every completer has ended and everything set aside is recorded. At the end of a stop
/// it gives up what is left: the claims expire, and the messages are delivered again.
pub(crate) async fn run(shared: Arc<Shared>, mut arrivals: Arrivals, stop: Arc<Stop>) {
    let mut told: Option<Instant> = None;
    while let Some(first) = arrivals.recv().await {
        let mut waiting = VecDeque::from([first]);
        while !waiting.is_empty() {
            tokio::select! {
                biased;
                () = stop.over() => break,
                () = tokio::time::sleep(RETRY_EVERY) => {}
            }
            while let Ok(more) = arrivals.try_recv() {
                waiting.push_back(more);
            }
            retry(&shared, &mut waiting, &stop).await;
            let is_due = told.is_none_or(|at| at.elapsed() >= TOLD_EVERY);
            if !waiting.is_empty() && is_due {
                told = Some(Instant::now());
                tracing::warn!(
                    outcomes = waiting.iter().map(Vec::len).sum::<usize>(),
                    "outcomes wait for messages that another transaction has locked: look for one that stays open"
                );
            }
        }
        give_up(&shared, waiting.into_iter().flatten().collect());
    }
}

/// Tries to record each part once. What is still locked stays. One long wait for a lock ends this
/// round: the next begins with the others.
async fn retry(shared: &Shared, waiting: &mut VecDeque<Vec<Completion>>, stop: &Stop) {
    let mut locked = Vec::new();
    while let Some(mut part) = waiting.pop_front() {
        if part.len() > SETTLE_MAX {
            waiting.push_front(part.split_off(SETTLE_MAX));
        }
        let group = Group::gather(part);
        let began = Instant::now();
        match settle_with_retry(shared, &group.settlements, stop, Some(0)).await {
            None => group.give_up(shared),
            Some(Ok(settled)) => locked.extend(group.record(shared, settled).await),
            Some(Err(error)) => {
                let mut part = group.completions;
                // Which of them it is shows when they are tried apart.
                let half = part.split_off(part.len() / 2);
                let is_long = began.elapsed() >= CONFLICT_LONG;
                if part.is_empty() {
                    locked.extend(judge(shared, half, &error));
                } else if is_long {
                    waiting.extend([part, half]);
                } else {
                    waiting.push_front(half);
                    waiting.push_front(part);
                }
                if is_long && error.kind == StoreErrorKind::Conflict {
                    break;
                }
            }
        }
    }
    if !locked.is_empty() {
        waiting.push_back(locked);
    }
}

/// What becomes of the one outcome that the database answers with an error.
fn judge(shared: &Shared, part: Vec<Completion>, error: &StoreError) -> Vec<Completion> {
    match error.kind {
        StoreErrorKind::Conflict => part,
        StoreErrorKind::Refused | StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
            for one in &part {
                tracing::error!(
                    id = %one.id,
                    error = with_causes(error),
                    "the database refuses this outcome; the message will be delivered again when its claim expires"
                );
            }
            Group { completions: part, settlements: Vec::new() }.give_up(shared);
            Vec::new()
        }
    }
}

fn give_up(shared: &Shared, waiting: Vec<Completion>) {
    if !waiting.is_empty() {
        tracing::error!(
            outcomes = waiting.len(),
            "outcomes could not be recorded before the stop; the messages will be delivered again when their claims expire"
        );
        Group { completions: waiting, settlements: Vec::new() }.give_up(shared);
    }
}
