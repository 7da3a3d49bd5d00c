//! Delivers batches as records.

use super::classify::{classify, concerns_the_request, timed_out};
use super::config::KafkaConfig;
use super::link::{Link, Requests};
use super::record::Record;
use super::tray::Tray;
use crate::batch::Batch;
use crate::connections::Connections;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use rdkafka::error::RDKafkaErrorCode as Code;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait for room in librdkafka's queue before looking again.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Publishes through one producer that all batches share.
pub(super) struct KafkaSink {
    config: Arc<KafkaConfig>,
    links: Connections<Link>,
    /// For messages that must be judged alone. Hardly ever needed, so hardly ever made.
    alone: Connections<Link>,
}

impl KafkaSink {
    pub(super) fn new(config: KafkaConfig) -> Self {
        let config = Arc::new(config);
        let links = |requests| {
            let own = Arc::clone(&config);
            Connections::new(config.limit, move || Link::connect(Arc::clone(&own), requests))
        };
        Self { links: links(Requests::Full), alone: links(Requests::Single), config }
    }

    /// Sends these messages of the batch, and settles them by what comes back. Returns those that
    /// may be good, and were refused together with others.
    async fn publish(
        &self,
        requests: Requests,
        messages: &[Message],
        indices: &[usize],
        batch: &Batch<'_>,
        deadline: Instant,
    ) -> Vec<usize> {
        let links = match requests {
            Requests::Full => &self.links,
            Requests::Single => &self.alone,
        };
        let held = match links.get(deadline).await {
            Ok(held) => held,
            Err(outcome) => {
                batch.settle_rest(&outcome);
                return Vec::new();
            }
        };
        // All of them before the first is sent: what librdkafka gets in one go travels in few requests.
        let mut records = Vec::with_capacity(indices.len());
        for &index in indices {
            match Record::of(&messages[index], &self.config) {
                Ok(record) => records.push((index, record)),
                Err(outcome) => batch.settle(index, outcome),
            }
        }
        let mut under_way = UnderWay {
            config: &self.config,
            link: &held.connection,
            batch,
            requests,
            tray: Arc::default(),
            waiting: 0,
            suspects: Vec::new(),
            is_refused: false,
        };
        for (index, record) in records {
            under_way.send(index, record, deadline).await;
        }
        while under_way.waiting > 0 && under_way.take(deadline).await {}
        let UnderWay { waiting, suspects, mut is_refused, .. } = under_way;
        if waiting > 0 {
            let outcome = timed_out(&self.config, held.connection.trouble().as_ref());
            is_refused |= matches!(outcome, Outcome::Refuse { .. });
            for index in indices.iter().filter(|index| !suspects.contains(index)) {
                batch.settle(*index, outcome.clone());
            }
        }
        if is_refused || held.connection.fatal().is_some() {
            // What librdkafka knows of the topic, or of its own sequence, is not worth keeping.
            links.lost(&held);
        }
        suspects
    }
}

/// Messages that librdkafka has.
struct UnderWay<'a> {
    config: &'a KafkaConfig,
    link: &'a Link,
    batch: &'a Batch<'a>,
    requests: Requests,
    tray: Arc<Tray>,
    waiting: usize,
    suspects: Vec<usize>,
    is_refused: bool,
}

impl UnderWay<'_> {
    /// Hands over one record, when there is room for it.
    async fn send(&mut self, index: usize, mut record: Record, deadline: Instant) {
        loop {
            match self.link.send(&self.config.topic, index, record, &self.tray) {
                Ok(()) => return self.waiting += 1,
                Err((Code::QueueFull, back)) if Instant::now() < deadline => {
                    record = back;
                    self.take(Instant::now() + QUEUE_PAUSE).await;
                }
                Err((code, _)) => return self.fail(index, code),
            }
        }
    }

    /// Settles what has come back. Says whether anything had, before the time was up.
    async fn take(&mut self, until: Instant) -> bool {
        let settled = self.tray.take(until).await;
        if settled.is_empty() {
            return false;
        }
        self.waiting -= settled.len();
        if settled.iter().any(|(_, error)| error.is_none()) {
            self.link.is_well();
        }
        for (index, error) in settled {
            match error {
                None => self.batch.settle(index, Outcome::Delivered),
                Some(code) if self.requests == Requests::Full && concerns_the_request(code) => {
                    self.suspects.push(index);
                }
                Some(code) => self.fail(index, code),
            }
        }
        true
    }

    fn fail(&mut self, index: usize, code: Code) {
        let code = match code {
            Code::Fatal => self.link.fatal().unwrap_or(code),
            _ => code,
        };
        let outcome = classify(self.config, code, self.link.trouble().as_ref());
        self.is_refused |= matches!(outcome, Outcome::Refuse { .. });
        self.batch.settle(index, outcome);
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        let all: Vec<usize> = (0..messages.len()).collect();
        let suspects = self.publish(Requests::Full, messages, &all, &batch, deadline).await;
        if !suspects.is_empty() {
            self.publish(Requests::Single, messages, &suspects, &batch, deadline).await;
        }
    }

    /// Large enough to hide the way to the brokers, small enough to be settled in time.
    fn batch_max(&self) -> usize {
        1000
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let limit = self.config.limit;
        match tokio::time::timeout(limit, Link::probe(Arc::clone(&self.config))).await {
            Ok(result) => result.map_err(ProbeError::from),
            Err(_) => Err(timed_out(&self.config, None).into()),
        }
    }
}
