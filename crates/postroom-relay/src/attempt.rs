//! One sink call: whatever it does, each of its messages gets exactly one fate.

use crate::completer::Completion;
use crate::held::Claim;
use crate::lane::Work;
use crate::relay::Shared;
use crate::room::{LaneRoom, Place};
use crate::verdict::{dead, judge, log_fate, panicked, unanswered};
use futures_util::FutureExt;
use postroom_core::{Fate, Message, Outcome, OutcomeReceiver, Report};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Delivers `works` in one sink call. A panic or a timeout is a failed attempt of what the sink
/// had not reported; when this future is dropped, that is given back.
pub(crate) async fn attempt(
    shared: Arc<Shared>,
    room: Arc<LaneRoom>,
    works: Vec<Work>,
    completions: UnboundedSender<Vec<Completion>>,
) {
    let call = Call::new(&shared, &room, works, &completions);
    if call.messages.is_empty() {
        return;
    }
    let lane = &room.lane;
    let report = Report::new(&call);
    let mut delivery = AssertUnwindSafe(lane.sink.deliver(&call.messages, &report)).catch_unwind();
    // What the sink reports is passed on whenever it pauses: at once where it waits between
    // messages, and together where it settles many in one go.
    let delivery = poll_fn(|context| {
        let poll = delivery.poll_unpin(context);
        call.pass_on();
        poll
    });
    let missing = match tokio::time::timeout(lane.timeout, delivery).await {
        Ok(Ok(())) => "the sink reported no outcome".to_owned(),
        Ok(Err(panic)) => panicked(&*panic),
        Err(_) => unanswered(lane.timeout),
    };
    shared.metrics.delivery_took(&lane.integration, call.started.elapsed());
    for index in 0..call.messages.len() {
        call.decide(index, || Outcome::retry(missing.clone()));
    }
    call.pass_on();
}

/// The messages of one sink call, and where their outcomes go.
struct Call<'a> {
    shared: &'a Shared,
    room: &'a Arc<LaneRoom>,
    completions: &'a UnboundedSender<Vec<Completion>>,
    messages: Vec<Message>,
    started: Instant,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// By the message's index; taken by its first outcome.
    undecided: Vec<Option<(Place, Arc<Claim>)>>,
    /// Decided, and not passed on to the completer yet.
    completed: Vec<Completion>,
}

impl<'a> Call<'a> {
    /// Keeps what can be delivered; what cannot has its fate at once.
    fn new(
        shared: &'a Shared,
        room: &'a Arc<LaneRoom>,
        works: Vec<Work>,
        completions: &'a UnboundedSender<Vec<Completion>>,
    ) -> Self {
        let mut call = Self {
            shared,
            room,
            completions,
            messages: Vec::with_capacity(works.len()),
            started: Instant::now(),
            progress: Mutex::default(),
        };
        let mut progress = Progress::default();
        for work in works {
            match call.hindrance(&work) {
                Hindrance::None => {
                    call.messages.push(work.message);
                    progress.undecided.push(Some((work.place, work.claim)));
                }
                Hindrance::Lost => progress.completed.push(Completion::of(work, None)),
                Hindrance::Fate(fate) => {
                    log_fate(&work.message, &fate);
                    progress.completed.push(Completion::of(work, Some(fate)));
                }
            }
        }
        call.progress = Mutex::new(progress);
        call.pass_on();
        call
    }

    fn hindrance(&self, work: &Work) -> Hindrance {
        let message = &work.message;
        let dead_letter = self.shared.settings.dead_letter.as_deref();
        if work.claim.is_lost() {
            return Hindrance::Lost;
        }
        if self.room.pauses.is_paused() {
            return Hindrance::Fate(Fate::Released);
        }
        if let Some(fault) = &work.fault {
            return Hindrance::Fate(dead(dead_letter, message, fault.to_string(), None));
        }
        // Lost as a suspect, which leaves no doubt, and more often than it may fail.
        let limit = &self.room.lane.retry;
        if work.place.rescues > 2 && limit.is_exhausted(message.attempts, message.max_attempts) {
            let error = format!(
                "lost with its relay {} times, last while handled alone: it seems to kill the process that delivers it",
                work.place.rescues
            );
            return Hindrance::Fate(dead(dead_letter, message, error, None));
        }
        Hindrance::None
    }

    /// Decides the fate of one message; only the first word counts.
    fn decide(&self, index: usize, outcome: impl FnOnce() -> Outcome) {
        let undecided = self.progress().undecided.get_mut(index).and_then(Option::take);
        let Some((place, claim)) = undecided else { return };
        let outcome = outcome();
        let message = &self.messages[index];
        self.room.pauses.heard(&outcome);
        let dead_letter = self.shared.settings.dead_letter.as_deref();
        let fate = judge(
            &self.room.lane.retry,
            dead_letter,
            message,
            outcome,
            self.started.elapsed(),
            &self.shared.chance,
        );
        log_fate(message, &fate);
        self.progress().completed.push(Completion {
            place,
            claim,
            seq: message.seq,
            id: message.id,
            fate: Some(fate),
        });
    }

    fn pass_on(&self) {
        let mut progress = self.progress();
        if !progress.completed.is_empty() {
            // The completer ends only after every lane.
            let _ = self.completions.send(std::mem::take(&mut progress.completed));
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutcomeReceiver for Call<'_> {
    fn outcome(&self, index: usize, outcome: Outcome) {
        self.decide(index, || outcome);
    }

    fn response(&self, index: usize, response: String) {
        if let Some(message) = self.messages.get(index) {
            self.shared.responses.put(message.id, response);
        }
    }
}

impl Drop for Call<'_> {
    /// A call that is cut off by a stop gives back what the sink has not reported.
    fn drop(&mut self) {
        let mut progress = self.progress();
        let Progress { undecided, completed } = &mut *progress;
        for (undecided, message) in undecided.iter_mut().zip(&self.messages) {
            if let Some((place, claim)) = undecided.take() {
                let fate = Some(Fate::Released);
                completed.push(Completion { place, claim, seq: message.seq, id: message.id, fate });
            }
        }
        drop(progress);
        self.pass_on();
    }
}

enum Hindrance {
    None,
    Lost,
    Fate(Fate),
}
