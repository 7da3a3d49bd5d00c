//! A wrapper that passes each message on once, for receivers that cannot recognise repeats.

use crate::wrapping::once;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, OutcomeReceiver, ProbeError, Report, Sink};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Passes each event of a stream to an integration on once. A second message on purpose, with
/// another `copy`, is passed on as well, and so is a replay.
///
/// What makes it up is remembered after the inner sink has reported it delivered, and forgotten when
/// `capacity` newer ones have come: the memory is bounded, and it is this process's own. What
/// must be recognised across restarts has to be recognised by the receiver.
pub struct DedupSink {
    inner: Arc<dyn Sink>,
    known: Mutex<Known>,
    /// Tells those that wait for one under way that something has settled.
    settled: Notify,
    capacity: usize,
}

#[derive(Default)]
struct Known {
    delivered: HashSet<String>,
    /// The same, oldest first.
    by_age: VecDeque<String>,
    under_way: HashSet<String>,
}

impl DedupSink {
    /// Wraps `inner`, remembering the last `capacity` messages.
    #[must_use]
    pub fn new(inner: Arc<dyn Sink>, capacity: usize) -> Self {
        Self { inner, known: Mutex::default(), settled: Notify::new(), capacity }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, id: &str) {
        let mut known = self.known();
        if !known.delivered.insert(id.to_owned()) {
            return;
        }
        known.by_age.push_back(id.to_owned());
        while known.by_age.len() > self.capacity {
            let Some(oldest) = known.by_age.pop_front() else { break };
            known.delivered.remove(&oldest);
        }
    }

    /// Marks messages from the head of `batch` as under way, as far as they may be passed on
    /// together. An empty run means that the first one is delivered or under way already.
    fn begin<'a>(&'a self, batch: &'a [Message]) -> Run<'a> {
        let mut known = self.known();
        let mut run = 0;
        for message in batch {
            let id = once(message);
            if known.delivered.contains(&id) || !known.under_way.insert(id) {
                break;
            }
            run += 1;
        }
        Run { sink: self, messages: &batch[..run] }
    }

    async fn await_other(&self, id: &str) {
        loop {
            let settled = self.settled.notified();
            if !self.known().under_way.contains(id) {
                return;
            }
            settled.await;
        }
    }
}

#[async_trait]
impl Sink for DedupSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let mut next = 0;
        while next < batch.len() {
            let id = once(&batch[next]);
            if self.known().delivered.contains(&id) {
                report.delivered(next);
                next += 1;
                continue;
            }
            let run = self.begin(&batch[next..]);
            if run.messages.is_empty() {
                self.await_other(&id).await;
                continue;
            }
            let part = report.part(next);
            let listener = Listener { run: &run, report: &part };
            self.inner.deliver(run.messages, &Report::new(&listener)).await;
            next += run.messages.len();
        }
    }

    fn batch_max(&self) -> usize {
        self.inner.batch_max()
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        self.inner.probe().await
    }
}

/// Messages under way. Dropped when they are through, and also when a lane gives up on them.
struct Run<'a> {
    sink: &'a DedupSink,
    messages: &'a [Message],
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut known = self.sink.known();
        for message in self.messages {
            known.under_way.remove(&once(message));
        }
        drop(known);
        self.sink.settled.notify_waiters();
    }
}

/// Hears the inner sink's outcomes on their way to the relay.
struct Listener<'a> {
    run: &'a Run<'a>,
    report: &'a Report<'a>,
}

impl OutcomeReceiver for Listener<'_> {
    fn outcome(&self, index: usize, outcome: Outcome) {
        if outcome == Outcome::Delivered
            && let Some(message) = self.run.messages.get(index)
        {
            self.run.sink.remember(&once(message));
        }
        self.report.outcome(index, outcome);
    }
}
