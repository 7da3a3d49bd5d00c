//! A sink that keeps what it receives and fails on demand, for tests.

use async_trait::async_trait;
use postroom_core::{Message, Outcome, Report, Sink};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Records messages, and does what a test tells it to. Clones share one record.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use postroom_core::Outcome;
/// use postroom_sinks::MemorySink;
/// let sink = MemorySink::new();
/// sink.fail_next(2, Outcome::retry("the receiver is busy"));
/// // … give it to a relay as a lane's sink, enqueue, then:
/// # if false {
/// sink.wait_for(1).await;
/// assert_eq!(sink.attempts(), 3);
/// # }
/// assert!(sink.delivered().is_empty());
/// # }
/// ```
#[derive(Clone)]
pub struct MemorySink {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Counts up whenever the state changes.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    delivered: Vec<Message>,
    attempts: usize,
    held: bool,
    waiting: usize,
    faults: VecDeque<Fault>,
    deadly: HashSet<String>,
}

enum Fault {
    /// The receiver answers with this instead.
    Answer(Outcome),
    /// The receiver takes the message, but its answer is lost.
    LoseAnswer,
}

impl MemorySink {
    /// An empty record; everything is acknowledged until told otherwise.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared { state: Mutex::default(), changes: watch::channel(0).0 };
        Self { shared: Arc::new(shared) }
    }

    /// What was received, in the order of arrival, repeats included.
    #[must_use]
    pub fn delivered(&self) -> Vec<Message> {
        self.state().delivered.clone()
    }

    /// How many messages were offered, whatever became of them.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.state().attempts
    }

    /// The next `n` messages get `outcome` and are not recorded.
    pub fn fail_next(&self, n: usize, outcome: Outcome) {
        self.state().faults.extend((0..n).map(|_| Fault::Answer(outcome.clone())));
    }

    /// The next `n` messages are recorded, but their acknowledgement is lost on its way.
    pub fn lose_next_answers(&self, n: usize) {
        self.state().faults.extend((0..n).map(|_| Fault::LoseAnswer));
    }

    /// Panics whenever a message with this event id is offered.
    pub fn panic_on(&self, event_id: impl Into<String>) {
        self.state().deadly.insert(event_id.into());
    }

    /// Holds every message that is offered from now on, before it is received.
    pub fn hold(&self) {
        self.change(|state| state.held = true);
    }

    /// Lets the held ones go on.
    pub fn release(&self) {
        self.change(|state| state.held = false);
    }

    /// Waits until `n` messages were received.
    pub async fn wait_for(&self, n: usize) {
        self.wait_until(|state| state.delivered.len() >= n).await;
    }

    /// Waits until `n` calls are held.
    pub async fn wait_held(&self, n: usize) {
        self.wait_until(|state| state.held && state.waiting >= n).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.shared.changes.send_modify(|changes| *changes += 1);
        result
    }

    async fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !condition(&self.state()) {
            // The sender lives as long as `self` does, so this cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Receives one message as the test has asked.
    fn receive(&self, message: &Message) -> Outcome {
        self.change(|state| {
            state.attempts += 1;
            if state.deadly.contains(&message.event_id) {
                return None;
            }
            Some(match state.faults.pop_front() {
                Some(Fault::Answer(outcome)) => {
                    if outcome == Outcome::Delivered {
                        state.delivered.push(message.clone());
                    }
                    outcome
                }
                Some(Fault::LoseAnswer) => {
                    state.delivered.push(message.clone());
                    Outcome::retry("the answer was lost")
                }
                None => {
                    state.delivered.push(message.clone());
                    Outcome::Delivered
                }
            })
        })
        .unwrap_or_else(|| panic!("the memory sink was told to panic on {}", message.event_id))
    }
}

impl Default for MemorySink {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Sink for MemorySink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            let waiting = Waiting::begin(self);
            self.wait_until(|state| !state.held).await;
            drop(waiting);
            report.outcome(index, self.receive(message));
        }
    }
}

/// Counts a call as held until it goes on or is dropped.
struct Waiting<'a>(&'a MemorySink);

impl<'a> Waiting<'a> {
    fn begin(sink: &'a MemorySink) -> Self {
        sink.change(|state| state.waiting += 1);
        Self(sink)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.waiting -= 1);
    }
}
