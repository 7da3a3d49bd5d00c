//! A sink that does with each message what a test says.

use async_trait::async_trait;
use postroom_core::{Message, Outcome, Report, Sink};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What happens to a message.
pub(crate) enum Act {
    /// This is reported.
    Report(Outcome),
    /// Nothing is reported, and the sink goes on.
    Silence,
    /// The sink never returns.
    Stall,
    /// The sink panics.
    Panic,
}

impl Act {
    pub(crate) fn fail() -> Self {
        Self::Report(Outcome::retry("503 Service Unavailable"))
    }
}

/// Asks the script for every message, and counts how often it did. Clones share the count.
pub(crate) struct Script<F> {
    act: Arc<F>,
    attempts: Arc<AtomicUsize>,
}

impl<F: Fn(&Message) -> Act + Send + Sync + 'static> Script<F> {
    pub(crate) fn new(act: F) -> Self {
        Self { act: Arc::new(act), attempts: Arc::default() }
    }

    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Acquire)
    }
}

impl<F> Clone for Script<F> {
    fn clone(&self) -> Self {
        Self { act: Arc::clone(&self.act), attempts: Arc::clone(&self.attempts) }
    }
}

#[async_trait]
impl<F: Fn(&Message) -> Act + Send + Sync + 'static> Sink for Script<F> {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            self.attempts.fetch_add(1, Ordering::AcqRel);
            match (self.act)(message) {
                Act::Report(outcome) => report.outcome(index, outcome),
                Act::Silence => {}
                Act::Stall => std::future::pending().await,
                Act::Panic => panic!("the connection pool is poisoned"),
            }
        }
    }
}

/// Takes this long for each message, and accepts it.
pub(crate) struct Slow(pub(crate) Duration);

#[async_trait]
impl Sink for Slow {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for index in 0..batch.len() {
            tokio::time::sleep(self.0).await;
            report.delivered(index);
        }
    }
}
