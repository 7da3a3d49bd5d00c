//! The sink that publishes to RabbitMQ (AMQP 0.9.1).
//!
//! A message is delivered once the broker has confirmed it and not returned it: it is persistent,
//! and in at least one queue. `message_id` carries the idempotency key.

mod classify;
mod link;

use crate::batch::Batch;
use crate::connections::Connections;
use crate::endpoints::Endpoints;
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::template::Template;
use crate::tls;
use crate::wrapping::Wrapping;
use async_trait::async_trait;
use classify::{Failure, Fixed, classify};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, ExchangeKind};
use link::Link;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Properties and headers travel in one frame, which holds 128 KiB unless configured otherwise.
const HEADERS_BYTES_MAX: usize = 120_000;

/// What RabbitMQ itself calls a persistent message.
const PERSISTENT: u8 = 2;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "rabbitmq",
    keys: &["url", "exchange", "routing_key", "ca_file", "format", "idempotency_key"],
    concurrency: 4,
    timeout: Duration::from_secs(10),
    read: |options, to| RabbitConfig::read(options, to).map(SinkConfig::new),
};

/// Which brokers, which exchange, which routing key.
#[derive(Clone, Debug)]
pub(crate) struct RabbitConfig {
    endpoints: Endpoints,
    exchange: Template,
    routing_key: Template,
    ca_file: Option<PathBuf>,
    wrapping: Wrapping,
    /// How long a batch may take.
    limit: Duration,
}

impl RabbitConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let endpoints = Endpoints::read(options, &[("amqp", 5672), ("amqps", 5671)]);
        let exchange = Template::read(options, "exchange", to.channel());
        let routing_key = Template::read(options, "routing_key", "{event_type}");
        let ca_file = options.optional("ca_file", "the path of a file of certificates");
        let wrapping = Wrapping::read(options);
        let limit = to.own_timeout();
        let (exchange, routing_key) = (exchange?, routing_key?);
        Some(Self { endpoints: endpoints?, exchange, routing_key, ca_file, wrapping, limit })
    }

    fn fixed(&self) -> Fixed {
        Fixed {
            exchange: self.exchange.fixed().is_some(),
            routing_key: self.routing_key.fixed().is_some(),
        }
    }
}

impl Build for RabbitConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        tls::choose_provider();
        let config = self.clone();
        let connections = Connections::new(self.limit, move || link::connect(config.clone()));
        Ok(Arc::new(RabbitSink { config: self.clone(), connections }))
    }
}

/// Publishes over one connection, each batch on a channel that it has to itself.
struct RabbitSink {
    config: RabbitConfig,
    connections: Connections<Link>,
}

/// A message as it is published.
struct Letter {
    index: usize,
    exchange: ShortString,
    routing_key: ShortString,
    properties: BasicProperties,
    body: String,
}

/// What the broker confirmed of a batch, as far as it is not settled at once.
#[derive(Default)]
struct Confirmed {
    /// What it gave back. What that means is known at the end of the batch.
    returned: Mutex<BTreeMap<usize, u16>>,
    /// Whether a message has found a queue.
    some_arrived: AtomicBool,
}

impl Confirmed {
    fn returned(&self) -> MutexGuard<'_, BTreeMap<usize, u16>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RabbitSink {
    fn letter(&self, index: usize, message: &Message) -> Result<Letter, Outcome> {
        let exchange = short("exchange", self.config.exchange.render(message)?)?;
        let routing_key = short("routing key", self.config.routing_key.render(message)?)?;
        let mut wrapped = self.config.wrapping.wrap(message)?;
        let mut headers = FieldTable::default();
        let mut bytes = 0;
        for (name, value) in wrapped.take_headers("cloudEvents:") {
            // With these two the broker would route the message elsewhere as well; the last is the
            // content type of the message itself.
            if ["CC", "BCC", "cloudEvents:datacontenttype"].contains(&name.as_ref()) {
                continue;
            }
            bytes += name.len() + value.len() + 16;
            let value = AMQPValue::LongString(LongString::from(value.into_bytes()));
            headers.insert(short("name of a header", name)?, value);
        }
        if bytes > HEADERS_BYTES_MAX {
            return Err(Outcome::reject(format!(
                "the message's headers have {bytes} bytes, more than fit into one frame: put what \
                 is large into the payload",
            )));
        }
        let when = message.occurred_at.unwrap_or(message.created_at).timestamp();
        let mut properties = BasicProperties::default()
            .with_message_id(short("idempotency key", wrapped.idempotency_key)?)
            .with_content_type(short("content type", wrapped.content_type)?)
            .with_type(short("event type", message.event_type.as_str())?)
            .with_delivery_mode(PERSISTENT)
            .with_timestamp(u64::try_from(when).unwrap_or_default())
            .with_headers(headers);
        if let Some(correlation) = &message.correlation_id {
            properties =
                properties.with_correlation_id(short("correlation id", correlation.as_str())?);
        }
        Ok(Letter { index, exchange, routing_key, properties, body: wrapped.body })
    }

    /// Publishes in order what is still open, and takes the confirms as they come. Returns
    /// what ended the channel.
    async fn pass(
        &self,
        channel: &Channel,
        open: Vec<&Letter>,
        confirmed: &Confirmed,
        batch: &Batch<'_>,
    ) -> Option<Failure> {
        let (published, mut awaited) = mpsc::unbounded_channel();
        let ended: Mutex<Option<Failure>> = Mutex::new(None);
        let end = |error: &lapin::Error| {
            let failure = Failure::of(error);
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            // The broker's word tells more than the client's on a channel that is closed already.
            if failure.is_from_the_broker() || ended.is_none() {
                *ended = Some(failure);
            }
        };
        let publishing = async {
            // Moved in, so that the receiver learns of the end.
            let published = published;
            for letter in open {
                let options = BasicPublishOptions { mandatory: true, immediate: false };
                let (exchange, key) = (letter.exchange.clone(), letter.routing_key.clone());
                let properties = letter.properties.clone();
                let body = letter.body.as_bytes();
                match channel.basic_publish(exchange, key, options, body, properties).await {
                    Ok(confirm) => drop(published.send((letter.index, confirm))),
                    Err(error) => return end(&error),
                }
            }
        };
        let confirming = async {
            let mut waiting = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some((index, confirm)) = awaited.recv() => {
                        waiting.push(async move { (index, confirm.await) });
                    }
                    Some((index, result)) = waiting.next() => match result {
                        Ok(confirmation) => self.confirm(index, confirmation, confirmed, batch),
                        Err(error) => end(&error),
                    },
                    else => return,
                }
            }
        };
        tokio::join!(publishing, confirming);
        ended.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn confirm(
        &self,
        index: usize,
        confirmation: Confirmation,
        confirmed: &Confirmed,
        batch: &Batch<'_>,
    ) {
        let outcome = match confirmation {
            // Confirmed and returned: it has reached no queue.
            Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => {
                confirmed.returned().insert(index, returned.reply_code);
                return;
            }
            Confirmation::Ack(None) => {
                confirmed.some_arrived.store(true, Ordering::Release);
                Outcome::Delivered
            }
            Confirmation::Nack(None) => self.classify(&Failure::Nacked),
            Confirmation::NotRequested => {
                self.classify(&Failure::Client("no confirm was asked for".to_owned()))
            }
        };
        batch.settle(index, outcome);
    }

    /// Settles what was returned, now that it is known whether others were not.
    fn settle_returned(&self, confirmed: &Confirmed, batch: &Batch<'_>) {
        let others_arrived = confirmed.some_arrived.load(Ordering::Acquire);
        for (index, code) in std::mem::take(&mut *confirmed.returned()) {
            let failure = Failure::Returned { code, others_arrived };
            batch.settle(index, self.classify(&failure));
        }
    }

    /// Publishes until every message is settled or returned. When the broker ends a channel because
    /// of one message, the others go on without it.
    ///
    /// # Errors
    /// What ended the last channel, and concerns all that is still open.
    async fn publish(
        &self,
        link: &Link,
        letters: &[Letter],
        confirmed: &Confirmed,
        batch: &Batch<'_>,
    ) -> Result<(), Failure> {
        let open = || -> Vec<&Letter> {
            let returned = confirmed.returned();
            let is_open = |index: usize| !batch.is_settled(index) && !returned.contains_key(&index);
            letters.iter().filter(|letter| is_open(letter.index)).collect()
        };
        loop {
            let channel = link.take_channel().await.map_err(|error| Failure::of(&error))?;
            let Some(failure) = self.pass(&channel, open(), confirmed, batch).await else {
                link.give_back(channel);
                return Ok(());
            };
            let mut culprits = open();
            let count = culprits.len();
            culprits.retain(|one| {
                let (exchange, key) = (one.exchange.as_str(), one.routing_key.as_str());
                failure.is_about(exchange, key, one.body.len())
            });
            let outcome = self.classify(&failure);
            culprits.iter().for_each(|one| batch.settle(one.index, outcome.clone()));
            if culprits.is_empty() || culprits.len() == count {
                return Err(failure);
            }
        }
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        classify(&self.config.endpoints.place(), self.config.fixed(), failure)
    }
}

#[async_trait]
impl Sink for RabbitSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        let letters = batch.prepare(messages, |index, message| self.letter(index, message));
        if letters.is_empty() {
            return;
        }
        let held = match self.connections.get_up(deadline, Link::is_up).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let confirmed = Confirmed::default();
        let publishing = self.publish(&held.connection, &letters, &confirmed, &batch);
        let ended = tokio::time::timeout_at(deadline, publishing).await;
        self.settle_returned(&confirmed, &batch);
        // What the client alone complains of, or nothing at all, is a connection that is not worth
        // keeping. It does not always know of its end by the time its channels do.
        let is_worth_keeping = match ended {
            Ok(Ok(())) => true,
            Ok(Err(failure)) => {
                batch.settle_rest(&self.classify(&failure));
                failure.is_from_the_broker()
            }
            Err(_) => {
                batch.settle_rest(&self.classify(&Failure::TimedOut));
                false
            }
        };
        if !is_worth_keeping || !held.connection.is_up() {
            self.connections.lost(&held);
        }
    }

    /// Large enough to hide the way to the broker, small enough to be settled in time.
    fn batch_max(&self) -> usize {
        1000
    }

    /// Connects, and looks for the exchange when it is the same for every message.
    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.limit;
        let held =
            self.connections.get_up(deadline, Link::is_up).await.map_err(ProbeError::from)?;
        // The default exchange has no name and is always there.
        let Some(exchange) = self.config.exchange.fixed().filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let looking = async {
            let channel = held.connection.take_channel().await?;
            let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
            let name = ShortString::try_new(exchange).unwrap_or_default();
            channel
                .exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default())
                .await
        };
        match tokio::time::timeout_at(deadline, looking).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.classify(&Failure::of(&error)).into()),
            Err(_) => Err(self.classify(&Failure::TimedOut).into()),
        }
    }
}

/// A text that AMQP allows 255 bytes for.
fn short(what: &str, text: impl Into<String>) -> Result<ShortString, Outcome> {
    ShortString::try_new(text).map_err(|_| {
        Outcome::reject(format!(
            "the {what} is longer than the 255 bytes that AMQP allows: correct the row or the \
             integration's templates"
        ))
    })
}
