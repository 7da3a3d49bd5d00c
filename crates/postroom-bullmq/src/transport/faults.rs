//! Queues that cannot be used as they are, while Redis itself answers.

use crate::error::QueueError;
use postroom_core::with_causes;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long nothing is dispatched to a queue that could not take it.
const HELD: Duration = Duration::from_secs(2);

/// Who has met with a fault: only the same one knows when it is over.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Who {
    Opener,
    Dispatcher,
    Watcher,
    Sweep,
}

/// The faults of queues. Each concerns the lanes of its queue, and no others.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The queues of each lane.
    queues: HashMap<usize, HashSet<String>>,
    faults: HashMap<(String, Who), (String, Instant)>,
}

impl Faults {
    /// Notes that a lane uses a queue.
    pub(crate) fn uses(&self, lane: usize, queue: &str) {
        self.state().queues.entry(lane).or_default().insert(queue.to_owned());
    }

    /// Notes that a queue cannot be used. Says so in the log, unless it was known.
    pub(crate) fn begin(&self, queue: &str, who: Who, error: &QueueError) {
        let error = with_causes(error);
        let known = (error.clone(), Instant::now());
        let before = self.state().faults.insert((queue.to_owned(), who), known);
        if before.is_none_or(|(before, _)| before != error) {
            tracing::warn!(
                queue,
                error,
                "this queue cannot be used: what is for it waits, no attempt is used"
            );
        }
    }

    /// Notes that it can.
    pub(crate) fn end(&self, queue: &str, who: Who) {
        let mut state = self.state();
        if !state.faults.is_empty() && state.faults.remove(&(queue.to_owned(), who)).is_some() {
            tracing::info!(queue, "the queue can be used again");
        }
    }

    /// Whether somebody has met with a fault that is not over.
    pub(crate) fn has(&self, queue: &str, who: Who) -> bool {
        let state = self.state();
        // Mostly there is none.
        !state.faults.is_empty() && state.faults.contains_key(&(queue.to_owned(), who))
    }

    /// Forgets a queue that nobody uses any more.
    pub(crate) fn forget(&self, queue: &str) {
        let mut state = self.state();
        state.queues.values_mut().for_each(|queues| _ = queues.remove(queue));
        state.faults.retain(|(of, _), _| of != queue);
    }

    /// Why a lane's queues cannot be used.
    pub(crate) fn error(&self, lane: usize) -> Option<String> {
        let state = self.state();
        let mut faults = state.faults.iter();
        let fault = faults.find(|((queue, _), _)| state.has(lane, queue));
        fault.map(|(_, (error, _))| error.clone())
    }

    /// Whether nothing is to be dispatched to a queue for now.
    pub(crate) fn is_held(&self, queue: &str) -> bool {
        let state = self.state();
        // Mostly there is none.
        !state.faults.is_empty()
            && state
                .faults
                .get(&(queue.to_owned(), Who::Dispatcher))
                .is_some_and(|(_, since)| since.elapsed() < HELD)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has(&self, lane: usize, queue: &str) -> bool {
        self.queues.get(&lane).is_some_and(|queues| queues.contains(queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_concerns_the_lanes_of_its_queue_until_whoever_met_it_says_so() {
        let faults = Faults::default();
        for (lane, queue) in [(0, "a"), (0, "b"), (1, "b"), (2, "c")] {
            faults.uses(lane, queue);
        }
        let error = QueueError::misconfigured("host:6379", "no rights");
        faults.begin("b", Who::Dispatcher, &error);
        faults.begin("b", Who::Watcher, &error);
        let held = |faults: &Faults| ["a", "b", "c"].map(|queue| faults.is_held(queue));
        assert_eq!(held(&faults), [false, true, false]);
        assert!(faults.error(1).is_some() && faults.error(2).is_none());
        // It is tried again, and stays a fault until that has worked.
        tokio::time::advance(HELD).await;
        assert_eq!(held(&faults), [false; 3]);
        faults.end("b", Who::Dispatcher);
        assert!(faults.error(0).is_some());
        faults.end("b", Who::Watcher);
        assert_eq!(faults.error(0), None);
        faults.begin("b", Who::Watcher, &error);
        faults.forget("b");
        faults.uses(0, "b");
        assert_eq!(faults.error(0), None);
    }
}
