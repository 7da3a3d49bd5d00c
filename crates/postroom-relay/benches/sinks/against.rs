//! One sink through the relay, against its library in a bare loop.

use crate::figure::Figure;
use crate::size::Size;
use anyhow::{Context as _, ensure};
use postroom_core::{
    Intake as _, Message, NewMessage, Outcome, OutcomeReceiver, Report, Sink, SystemClock,
};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::{Destination, SinkKind};
use postroom_store::memory::MemoryStore;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use uuid::Uuid;

/// What is drained per round to see that a figure can still be measured.
const SMOKE_MESSAGES: usize = 500;
const EVENT_TYPE: &str = "bench.event.v1";

/// The payload of every message, 300 bytes.
fn payload() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(289))
}

/// A sink for `integration`, made as a configuration makes it.
pub(crate) fn sink(integration: &str, options: Value) -> anyhow::Result<Arc<dyn Sink>> {
    let Value::Object(options) = options else { anyhow::bail!("options are a table") };
    let destination = Destination { integration, timeout: Duration::from_secs(10) };
    let config = SinkKind::of(integration)?.validate(options, &destination);
    let config = config.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    config.build().context("the sink")
}

/// A message as the bare loop has it: what a sink sends for the relay's messages, ready to be
/// handed to the library.
pub(crate) struct Ready {
    pub(crate) event_id: String,
    /// What a sink has its server recognise a repetition by.
    pub(crate) once: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Ready {
    fn new() -> Self {
        let event_id = Uuid::now_v7().to_string();
        let headers = vec![
            ("idempotency-key", event_id.clone()),
            ("postroom-event-id", event_id.clone()),
            ("postroom-event-type", EVENT_TYPE.to_owned()),
            ("postroom-message-id", Uuid::now_v7().to_string()),
            ("postroom-stream", event_id.clone()),
            ("postroom-schema-version", "1".to_owned()),
            ("postroom-attempt", "1".to_owned()),
        ];
        let once = format!("bench:bench/{event_id}/{event_id}");
        Self { event_id, once, headers, body: payload() }
    }
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
    /// How many messages a call carries, on both sides.
    pub(crate) batch_size: usize,
}

impl Subject {
    /// Measures in turn: the relay with `sink`, and `bare`, which delivers a call's messages with
    /// the library alone and returns once all are acknowledged.
    pub(crate) async fn measure<F>(
        &self,
        size: Size,
        sink: Arc<dyn Sink>,
        bare: impl Fn(Arc<[Ready]>) -> F + Clone + Send + 'static,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        // Once without counting: connections are made, and code is warm.
        let messages = size.pick(self.messages, SMOKE_MESSAGES);
        self.relayed(messages, &sink).await?;
        self.bare(messages, &bare).await?;
        let mut rounds = Vec::new();
        for round in 1..=size.pick(5, 1) {
            let ours = self.relayed(messages, &sink).await?;
            let reference = self.bare(messages, &bare).await?;
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
                "messages": messages,
                "concurrency": self.concurrency,
                "batch_size": self.batch_size,
                "payload_bytes": payload().len(),
            }),
        }
        .print();
        Ok(())
    }

    /// From the relay's start until everything is recorded.
    async fn relayed(&self, messages: usize, sink: &Arc<dyn Sink>) -> anyhow::Result<f64> {
        let store = MemoryStore::new(Arc::new(SystemClock));
        for _ in 0..messages {
            let message = NewMessage::new(self.name, EVENT_TYPE).raw(payload());
            store.enqueue(&message).await?;
        }
        let all = Arc::new(Notify::new());
        let counting = Arc::new(Counting {
            inner: Arc::clone(sink),
            delivered: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            until: messages,
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
        Ok(messages as f64 / took.as_secs_f64())
    }

    /// As many loops as the relay has calls, each with the next call's messages.
    async fn bare<F>(
        &self,
        messages: usize,
        deliver: &(impl Fn(Arc<[Ready]>) -> F + Clone + Send + 'static),
    ) -> anyhow::Result<f64>
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        let all: Vec<Ready> = (0..messages).map(|_| Ready::new()).collect();
        let mut calls: Vec<Arc<[Ready]>> = Vec::new();
        let mut all = all.into_iter().peekable();
        while all.peek().is_some() {
            calls.push(all.by_ref().take(self.batch_size).collect());
        }
        let calls = Arc::new(calls);
        let next = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let mut loops = JoinSet::new();
        for _ in 0..self.concurrency {
            let (next, deliver, calls) = (Arc::clone(&next), deliver.clone(), Arc::clone(&calls));
            loops.spawn(async move {
                while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    deliver(Arc::clone(call)).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(one) = loops.join_next().await {
            one??;
        }
        Ok(messages as f64 / started.elapsed().as_secs_f64())
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
