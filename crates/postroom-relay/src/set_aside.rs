//! Outcomes that could not be recorded at once: their messages are locked by another transaction,
//! or the database refuses one of them.
//!
//! One task records all of them, so that they use one connection however many they are. Their
//! number is bounded by what their lanes may hold: such a lane fills up, and the others go on.

use crate::completer::{Completion, Group, Recorded, SETTLE_MAX, insist};
use crate::relay::Shared;
use crate::responses::keep_responses;
use crate::stop::Stop;
use postroom_core::{StoreError, StoreErrorKind, with_causes};
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
    while let Some(mut waiting) = arrivals.recv().await {
        while !waiting.is_empty() {
            tokio::select! {
                biased;
                () = stop.over() => break,
                () = tokio::time::sleep(RETRY_EVERY) => {}
            }
            while let Ok(more) = arrivals.try_recv() {
                waiting.extend(more);
            }
            waiting = retry(&shared, waiting, &stop).await;
            let is_due = told.is_none_or(|at| at.elapsed() >= TOLD_EVERY);
            if !waiting.is_empty() && is_due {
                told = Some(Instant::now());
                tracing::warn!(
                    outcomes = waiting.len(),
                    "outcomes wait for messages that another transaction has locked: look for one that stays open"
                );
            }
        }
        give_up(&shared, waiting);
    }
}

/// Tries to record outcomes once; those that are still locked.
async fn retry(shared: &Shared, waiting: Vec<Completion>, stop: &Stop) -> Vec<Completion> {
    let mut locked = Vec::new();
    let mut parts = vec![waiting];
    while let Some(mut part) = parts.pop() {
        if part.len() > SETTLE_MAX {
            parts.push(part.split_off(SETTLE_MAX));
        }
        let group = Group::gather(part);
        match insist(shared, &group.settlements, stop, Some(0)).await {
            None => {
                group.end(shared, None);
                continue;
            }
            Some(Ok(settled)) => {
                let responses = shared.responses.take(&group.settlements, &settled);
                locked.extend(group.record(shared, settled));
                keep_responses(&*shared.store, &responses).await;
            }
            Some(Err(error)) => {
                let mut part = group.completions;
                // Which of them it is shows when they are tried apart.
                if part.len() > 1 {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                } else {
                    locked.extend(judge(shared, part, &error));
                }
            }
        }
    }
    locked
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
            let refused = part.iter().map(|one| one.seq).collect();
            let recorded = Recorded { refused, ..Recorded::default() };
            Group { completions: part, settlements: Vec::new() }.end(shared, Some(recorded));
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
        Group { completions: waiting, settlements: Vec::new() }.end(shared, None);
    }
}
