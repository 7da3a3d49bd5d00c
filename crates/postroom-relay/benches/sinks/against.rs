//! One sink through the relay, against its library in a bare loop.

use crate::figure::Figure;
use anyhow::ensure;
use postroom_core::{
    Admin as _, Message, NewMessage, Outcome, OutcomeReceiver, Report, Sink, SystemClock,
};
use postroom_relay::{Lane, Relay, Settings};
use postroom_store::memory::MemoryStore;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const ROUNDS: usize = 5;

/// The payload of every message, 300 bytes.
pub(crate) fn payload() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(289))
}

/// What is measured.
pub(crate) struct Subject {
    /// The figure.
    pub(crate) name: &'static str,
    /// The client library, and how it is used.
    pub(crate) reference_is: &'static str,
    /// How many messages are drained per round.
    pub(crate) messages: usize,
    /// How many calls are under way at once, on both sides.
    pub(crate) concurrency: usize,
    /// How many messages a call carries at most.
    pub(crate) batch_size: usize,
}

impl Subject {
    /// Measures in turn: the relay with `sink`, and `bare`, which delivers the message of a
    /// number with the library alone.
    pub(crate) async fn measure<F>(
        &self,
        sink: Arc<dyn Sink>,
        bare: impl Fn(usize) -> F + Clone + Send + 'static,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        // Once without counting: connections are made, and code is warm.
        self.relayed(&sink).await?;
        self.bare(&bare).await?;
        let mut rounds = Vec::with_capacity(ROUNDS);
        for round in 1..=ROUNDS {
            let ours = self.relayed(&sink).await?;
            let reference = self.bare(&bare).await?;
            eprintln!("{}, round {round}: relay {ours:.0}/s, bare {reference:.0}/s", self.name);
            rounds.push((ours, reference));
        }
        Figure {
            bench: "sinks",
            name: self.name,
            rounds,
            reference_is: self.reference_is,
            unit: "messages/s",
            more_is_better: true,
            notes: json!({
                "messages": self.messages,
                "concurrency": self.concurrency,
                "payload_bytes": payload().len(),
            }),
        }
        .print();
        Ok(())
    }

    /// From the relay's start until everything is recorded.
    async fn relayed(&self, sink: &Arc<dyn Sink>) -> anyhow::Result<f64> {
        let store = MemoryStore::new(Arc::new(SystemClock));
        for n in 0..self.messages {
            let message = NewMessage::new(self.name, "bench.event.v1").raw(payload());
            store.enqueue(&message.event_id(format!("event-{n}"))).await?;
        }
        let all = Arc::new(Notify::new());
        let counting = Arc::new(Counting {
            inner: Arc::clone(sink),
            delivered: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            until: self.messages,
            all: Arc::clone(&all),
        });
        let lane = Lane {
            concurrency: self.concurrency,
            batch_size: self.batch_size,
            ..Lane::new(self.name, Arc::clone(&counting) as Arc<dyn Sink>)
        };
        let relay = Relay::new(Arc::new(store), Settings::default(), vec![lane]);
        let started = Instant::now();
        relay.run(all.notified()).await?;
        let took = started.elapsed();
        ensure!(counting.failed.load(Ordering::Relaxed) == 0, "deliveries failed");
        Ok(self.messages as f64 / took.as_secs_f64())
    }

    /// As many loops as the relay has calls, each with the next message.
    async fn bare<F>(
        &self,
        deliver: &(impl Fn(usize) -> F + Clone + Send + 'static),
    ) -> anyhow::Result<f64>
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        let next = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let mut loops = JoinSet::new();
        for _ in 0..self.concurrency {
            let (next, deliver, messages) = (Arc::clone(&next), deliver.clone(), self.messages);
            loops.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= messages {
                        return anyhow::Ok(());
                    }
                    deliver(n).await?;
                }
            });
        }
        while let Some(one) = loops.join_next().await {
            one??;
        }
        Ok(self.messages as f64 / started.elapsed().as_secs_f64())
    }
}

/// Says when everything was delivered.
struct Counting {
    inner: Arc<dyn Sink>,
    delivered: AtomicUsize,
    failed: AtomicUsize,
    until: usize,
    all: Arc<Notify>,
}

#[async_trait::async_trait]
impl Sink for Counting {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let passed_on = PassedOn { counting: self, report };
        self.inner.deliver(batch, &Report::new(&passed_on)).await;
    }

    fn batch_max(&self) -> usize {
        self.inner.batch_max()
    }
}

struct PassedOn<'a> {
    counting: &'a Counting,
    report: &'a Report<'a>,
}

impl OutcomeReceiver for PassedOn<'_> {
    fn outcome(&self, index: usize, outcome: Outcome) {
        let counting = self.counting;
        let is_delivered = outcome == Outcome::Delivered;
        self.report.outcome(index, outcome);
        if !is_delivered {
            counting.failed.fetch_add(1, Ordering::Relaxed);
        } else if counting.delivered.fetch_add(1, Ordering::Relaxed) + 1 == counting.until {
            counting.all.notify_one();
        }
    }
}
