//! One sink call: whatever it does, each of its messages gets exactly one fate.

use crate::claim_registry::Claim;
use crate::completer::Completion;
use crate::lane::Work;
use crate::pauses::{Doubt, Gate, Refusal};
use crate::relay::Shared;
use crate::room::{LaneRoom, Place};
use crate::turns::Turn;
use crate::verdict::{dead, judge, log_fate, panicked, unanswered};
use futures_util::FutureExt;
use postroom_core::{Fate, Message, Outcome, OutcomeReceiver, Report, rows_after};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Delivers `works` in one sink call, in its `turn`. A panic or a timeout is a failed attempt
/// of what the sink had not reported; when this future is dropped, that is given back.
pub(crate) async fn attempt(
    shared: Arc<Shared>,
    room: Arc<LaneRoom>,
    works: Vec<Work>,
    completions: UnboundedSender<Vec<Completion>>,
    turn: Turn,
) {
    let call = Call::new(&shared, &room, works, &completions);
    if call.messages.is_empty() {
        return;
    }
    let lane = &room.lane;
    // In a block of its own: a call that takes too long is cut off before its outcome is recorded.
    let missing = {
        let report = Report::new(&call);
        let deliver = lane.sink.deliver(&call.messages, &report);
        let mut delivery = AssertUnwindSafe(deliver).catch_unwind();
        // What the sink reports is passed on whenever it pauses: at once where it waits between
        // messages, and together where it settles many in one go.
        let delivery = poll_fn(|context| {
            let poll = delivery.poll_unpin(context);
            call.pass_on();
            poll
        });
        match tokio::time::timeout(lane.timeout, delivery).await {
            Ok(Ok(())) => "the sink reported no outcome".to_owned(),
            Ok(Err(panic)) => panicked(&*panic),
            Err(_) => unanswered(lane.timeout),
        }
    };
    shared.metrics.delivery_took(&lane.integration, call.started.elapsed());
    for index in 0..call.messages.len() {
        call.decide(index, || Outcome::retry(missing.clone()));
    }
    call.pass_on();
    // Others are delivered meanwhile: what becomes of them tells.
    drop(turn);
    call.end_doubts().await;
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
    /// Refused, and it is not clear yet whether that concerns the message.
    doubtful: VecDeque<Doubtful>,
    /// Decided, and not passed on to the completer yet.
    completed: Vec<Completion>,
}

/// A message that was refused while others were accepted.
struct Doubtful {
    index: usize,
    place: Place,
    claim: Arc<Claim>,
    doubt: Doubt,
    error: String,
    took: Duration,
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
        let may_go = match self.room.pauses.gate() {
            Gate::Open => true,
            Gate::OneAtATime => self.room.in_hand() == 1,
            Gate::Closed => false,
        };
        if !may_go {
            return Hindrance::Fate(Fate::Released);
        }
        if let Some(fault) = &work.fault {
            return Hindrance::Fate(dead(dead_letter, message, fault.to_string(), None));
        }
        // Lost while it was handled alone, which leaves no doubt, and more often than it may fail.
        let limit = &self.room.lane.retry;
        if self.was_lost_alone(work) && limit.is_exhausted(message.attempts, message.max_attempts) {
            let error = format!(
                "lost with its relay {} times, last while handled alone: it seems to kill the process that delivers it",
                work.place.rescues
            );
            return Hindrance::Fate(dead(dead_letter, message, error, None));
        }
        Hindrance::None
    }

    /// Whether the last rescue of a message was one from a claim of its own.
    fn was_lost_alone(&self, work: &Work) -> bool {
        let before = work.place.rescues.saturating_sub(1);
        let rows = rows_after(before, self.shared.settings.batch_size);
        work.place.is_alone() && before > 0 && rows == 1
    }

    /// Decides the fate of one message; only the first word counts.
    fn decide(&self, index: usize, outcome: impl FnOnce() -> Outcome) {
        let undecided = self.progress().undecided.get_mut(index).and_then(Option::take);
        let Some((place, claim)) = undecided else { return };
        let outcome = outcome();
        let refusal = self.room.pauses.heard(&self.messages[index].id, &outcome);
        let fate = match (refusal, outcome) {
            // Nearly all are, and nobody asks how long that took.
            (None, Outcome::Delivered) => Fate::Sent,
            (Some(Refusal::Unclear(doubt)), Outcome::Refuse { error }) => {
                let took = self.started.elapsed();
                let doubtful = Doubtful { index, place, claim, doubt, error, took };
                return self.progress().doubtful.push_back(doubtful);
            }
            (Some(Refusal::Message), Outcome::Refuse { error }) => {
                self.judge(index, Outcome::retry(error), self.started.elapsed())
            }
            (Some(Refusal::Destination { again_in }), _) => Fate::Postponed { delay: again_in },
            (_, outcome) => self.judge(index, outcome, self.started.elapsed()),
        };
        self.complete(index, place, claim, fate);
    }

    /// Waits until it is clear what refusals meant.
    async fn end_doubts(&self) {
        loop {
            let next = self
                .progress()
                .doubtful
                .front()
                .map(|one| (&self.messages[one.index].id, one.doubt, one.error.clone()));
            let Some((id, doubt, error)) = next else { return };
            let refusal = self.room.pauses.ruling(id, doubt, &error).await;
            let Some(one) = self.progress().doubtful.pop_front() else { return };
            let fate = match refusal {
                Refusal::Message => self.judge(one.index, Outcome::retry(error), one.took),
                Refusal::Destination { again_in } => Fate::Postponed { delay: again_in },
                Refusal::Unclear(_) => Fate::Released,
            };
            self.complete(one.index, one.place, one.claim, fate);
            self.pass_on();
        }
    }

    fn judge(&self, index: usize, outcome: Outcome, took: Duration) -> Fate {
        let dead_letter = self.shared.settings.dead_letter.as_deref();
        let (retry, jitter) = (&self.room.lane.retry, &self.shared.jitter);
        judge(retry, dead_letter, &self.messages[index], outcome, took, jitter)
    }

    fn complete(&self, index: usize, place: Place, claim: Arc<Claim>, fate: Fate) {
        let message = &self.messages[index];
        log_fate(message, &fate);
        let (seq, id, fate) = (message.seq, message.id.clone(), Some(fate));
        self.progress().completed.push(Completion { place, claim, seq, id, fate, refusals: 0 });
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
            self.shared.responses.put(message.id.clone(), response);
        }
    }
}

impl Drop for Call<'_> {
    /// A call that is cut off by a stop gives back what the sink has not reported.
    fn drop(&mut self) {
        let mut progress = self.progress();
        let Progress { undecided, doubtful, completed } = &mut *progress;
        let unsaid = undecided.iter_mut().enumerate();
        let unsaid = unsaid.filter_map(|(index, one)| one.take().map(|one| (index, one)));
        let unclear = doubtful.drain(..).map(|one| (one.index, (one.place, one.claim)));
        for (index, (place, claim)) in unsaid.chain(unclear) {
            let Message { seq, id, .. } = &self.messages[index];
            let (seq, id, fate) = (*seq, id.clone(), Some(Fate::Released));
            completed.push(Completion { place, claim, seq, id, fate, refusals: 0 });
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
