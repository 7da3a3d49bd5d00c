//! Outcomes that could not be recorded at once: their messages are locked by another transaction,
//! or the database refuses one of them.
//!
//! One task records all of them, so that they use one connection however many they are. Their
//! number is bounded by what their lanes may hold: such a lane fills up, and the others go on.
//! Those that the database refuses are held by [`refused`](crate::refused).

use crate::completer::{CONFLICT_LONG, Completion, Group, SETTLE_MAX, settle_with_retry};
use crate::refused::{Refusal, Refused};
use crate::relay::Shared;
use crate::stop::Stop;
use postroom_core::{StoreErrorKind, with_causes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How often they are tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// How often the operator is told that some are waiting, and that some are refused.
const TOLD_EVERY: Duration = Duration::from_secs(10);
const TOLD_REFUSED_EVERY: Duration = Duration::from_secs(60);

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
/// it gives up what is left: the claims expire, and the messages are delivered again. What the
/// database refuses is given up after one more try when a stop begins: nobody waits for a constraint.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut arrivals: Arrivals,
    refusal: Refusal,
    stop: Arc<Stop>,
) {
    let mut told = Told::default();
    while let Some(first) = arrivals.recv().await {
        let mut waiting = VecDeque::from([first]);
        let mut refused = Refused::default();
        while !waiting.is_empty() || refused.len() > 0 {
            tokio::select! {
                biased;
                () = stop.over() => break,
                () = tokio::time::sleep(RETRY_EVERY) => {}
            }
            while let Ok(more) = arrivals.try_recv() {
                waiting.push_back(more);
            }
            // Read once: what is refused after the stop has begun gets no other try.
            let is_last = stop.has_begun() || refusal == Refusal::GivenUp;
            let due = refused.take(is_last);
            retry(&shared, &mut waiting, &stop).await.hold(&shared, &mut refused, is_last);
            // Each by itself, as it was refused.
            let mut due: VecDeque<_> = due.into_iter().map(|one| vec![one]).collect();
            let tried = due.len();
            let again = retry(&shared, &mut due, &stop).await;
            if again.refused.len() + count(&due) < tried {
                refused.hurry();
            }
            again.hold(&shared, &mut refused, is_last);
            waiting.extend(due);
            told.tell(count(&waiting), refused.len());
        }
        waiting.push_back(refused.take(true));
        give_up(&shared, waiting.into_iter().flatten().collect());
    }
}

fn count(parts: &VecDeque<Vec<Completion>>) -> usize {
    parts.iter().map(Vec::len).sum()
}

/// What the operator was told, and when.
#[derive(Default)]
struct Told {
    locked: Option<Instant>,
    refused: Option<Instant>,
}

impl Told {
    fn tell(&mut self, locked: usize, refused: usize) {
        let is_due = |told: &mut Option<Instant>, count: usize, every: Duration| {
            let is_due = count > 0 && told.is_none_or(|at| at.elapsed() >= every);
            if is_due {
                *told = Some(Instant::now());
            }
            is_due
        };
        if is_due(&mut self.locked, locked, TOLD_EVERY) {
            tracing::warn!(
                outcomes = locked,
                "outcomes wait for messages that another transaction has locked: look for one that stays open"
            );
        }
        if is_due(&mut self.refused, refused, TOLD_REFUSED_EVERY) {
            tracing::warn!(
                outcomes = refused,
                "the database refuses outcomes: their messages are held, and their lanes take no more once they are \
                 full; look at the errors, and at the constraints and triggers of the table"
            );
        }
    }
}

/// Outcomes that the database refused, each with its error.
#[derive(Default)]
struct Answered {
    refused: Vec<(Completion, String)>,
}

impl Answered {
    /// Holds them, or gives them up if that was the last try.
    fn hold(self, shared: &Shared, refused: &mut Refused, is_last: bool) {
        for (completion, error) in self.refused {
            let is_first = completion.refusals == 0;
            if is_last {
                tracing::error!(
                    id = %completion.id,
                    error,
                    "the database refuses this outcome; the message will be delivered again when its claim expires"
                );
                Group { completions: vec![completion], settlements: Vec::new() }.give_up(shared);
                continue;
            }
            if is_first {
                tracing::error!(
                    id = %completion.id,
                    error,
                    "the database refuses this outcome; the message is held, and recording it is tried again"
                );
                let integration = &completion.place.room.lane.integration;
                shared.metrics.unrecorded(integration, 1);
            }
            refused.hold(completion, &shared.jitter);
        }
    }
}

/// Tries to record each part once. What is still locked stays. One long wait for a lock ends this
/// round: the next begins with the others. Returns what the database refuses.
async fn retry(shared: &Shared, waiting: &mut VecDeque<Vec<Completion>>, stop: &Stop) -> Answered {
    let mut locked = Vec::new();
    let mut answered = Answered::default();
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
                    match error.kind {
                        StoreErrorKind::Conflict => locked.extend(half),
                        StoreErrorKind::Refused
                        | StoreErrorKind::Unavailable
                        | StoreErrorKind::Schema => {
                            let text = with_causes(&error);
                            let half = half.into_iter().map(|one| (one, text.clone()));
                            answered.refused.extend(half);
                        }
                    }
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
    answered
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
