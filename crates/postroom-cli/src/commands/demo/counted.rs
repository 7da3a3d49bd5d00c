//! The webhook, with a count of what it had to report.

use super::ledger::Ledger;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, OutcomeReceiver, Report, Sink};
use postroom_sinks::WebhookSink;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Counted {
    inner: WebhookSink,
    ledger: Arc<Ledger>,
}

impl Counted {
    pub(super) fn new(inner: WebhookSink, ledger: Arc<Ledger>) -> Self {
        Self { inner, ledger }
    }
}

#[async_trait]
impl Sink for Counted {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let counter = Counter { ledger: &self.ledger, report };
        self.inner.deliver(batch, &Report::new(&counter)).await;
    }

    fn batch_max(&self) -> usize {
        self.inner.batch_max()
    }
}

struct Counter<'a> {
    ledger: &'a Ledger,
    report: &'a Report<'a>,
}

impl OutcomeReceiver for Counter<'_> {
    fn outcome(&self, index: usize, outcome: Outcome) {
        match &outcome {
            Outcome::Retry { .. } => self.ledger.retries.fetch_add(1, Ordering::Relaxed),
            Outcome::Reject { .. } | Outcome::Gone { .. } => {
                self.ledger.dead.fetch_add(1, Ordering::Relaxed)
            }
            Outcome::Delivered | Outcome::Refuse { .. } => 0,
        };
        self.report.outcome(index, outcome);
    }
}
