//! A batch under way whose outcomes come in any order.

use postroom_core::{Message, Outcome, Report};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports each message of a batch once.
pub(crate) struct Batch<'a> {
    report: &'a Report<'a>,
    settled: Vec<AtomicBool>,
}

impl<'a> Batch<'a> {
    /// A batch of `len` messages, none of them settled.
    pub(crate) fn new(report: &'a Report<'a>, len: usize) -> Self {
        Self { report, settled: (0..len).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Makes up each message for its way by `make`. What cannot be made is settled at once.
    pub(crate) fn prepare<T>(
        &self,
        messages: &[Message],
        make: impl Fn(usize, &Message) -> Result<T, Outcome>,
    ) -> Vec<T> {
        let mut made = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            match make(index, message) {
                Ok(one) => made.push(one),
                Err(outcome) => self.settle(index, outcome),
            }
        }
        made
    }

    /// States the outcome of one message, unless it has one.
    pub(crate) fn settle(&self, index: usize, outcome: Outcome) {
        let Some(settled) = self.settled.get(index) else { return };
        if !settled.swap(true, Ordering::AcqRel) {
            self.report.outcome(index, outcome);
        }
    }

    /// Whether this message has an outcome.
    pub(crate) fn is_settled(&self, index: usize) -> bool {
        self.settled.get(index).is_some_and(|settled| settled.load(Ordering::Acquire))
    }

    /// States the same outcome of all that have none.
    pub(crate) fn settle_rest(&self, outcome: &Outcome) {
        for index in 0..self.settled.len() {
            if !self.is_settled(index) {
                self.settle(index, outcome.clone());
            }
        }
    }
}
