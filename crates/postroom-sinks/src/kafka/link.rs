//! A producer, and what it hears from the brokers.
//!
//! librdkafka keeps the connections and makes them again when they are lost. What blocks in it
//! runs on threads of its own, which a stop of the relay does not wait for.

use super::classify::{Trouble, classify, unusable};
use super::config::KafkaConfig;
use super::record::Record;
use super::tray::Tray;
use postroom_core::Outcome;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::statistics::Statistics;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

type Producer = rdkafka::producer::ThreadedProducer<Listener>;

/// How often a topic is asked for that seems not to be there: a broker may be about to create it,
/// or may not have heard of it yet.
const TOPIC_TRIES: u32 = 4;
const TOPIC_PAUSE: Duration = Duration::from_millis(200);

/// A producer that all batches share.
#[derive(Clone)]
pub(super) struct Link(Arc<Owned>);

struct Owned {
    /// `None` once it has been dropped.
    producer: Option<Producer>,
    trouble: watch::Receiver<Option<Trouble>>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Waits for librdkafka's threads.
        let producer = self.producer.take();
        drop(std::thread::Builder::new().spawn(move || drop(producer)));
    }
}

/// How many messages a request to the broker carries per partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Requests {
    /// As many as there are.
    Full,
    /// One: what the broker says of it is said of that message alone.
    Single,
}

/// Goes with a message through librdkafka, and comes back when it is settled.
pub(super) struct Ticket {
    index: usize,
    tray: Arc<Tray>,
}

impl Link {
    /// Makes a producer, and sees that it reaches the topic.
    pub(super) async fn connect(
        config: Arc<KafkaConfig>,
        requests: Requests,
    ) -> Result<Self, Outcome> {
        let link = Self::new(&config, requests).await?;
        for left in (0..TOPIC_TRIES).rev() {
            let asked = link.ask(&config, Asked::Topic).await?;
            let topic = asked.topics().iter().find(|topic| topic.name() == config.topic);
            let error = topic.and_then(|topic| topic.error()).map(Code::from);
            match error {
                None => break,
                Some(Code::UnknownTopicOrPartition | Code::LeaderNotAvailable) if left > 0 => {
                    tokio::time::sleep(TOPIC_PAUSE).await;
                }
                Some(code) => return Err(classify(&config, code, link.trouble().as_ref())),
            }
        }
        Ok(link)
    }

    /// Sees that the topic is there, without asking for it: that could create it.
    pub(super) async fn probe(config: Arc<KafkaConfig>) -> Result<(), Outcome> {
        let link = Self::new(&config, Requests::Full).await?;
        let asked = link.ask(&config, Asked::Everything).await?;
        let topic = asked.topics().iter().find(|topic| topic.name() == config.topic);
        let error = match topic {
            Some(topic) => topic.error().map(Code::from),
            None => Some(Code::UnknownTopicOrPartition),
        };
        error.map_or(Ok(()), |code| Err(classify(&config, code, link.trouble().as_ref())))
    }

    async fn new(config: &Arc<KafkaConfig>, requests: Requests) -> Result<Self, Outcome> {
        let (sender, trouble) = watch::channel(None);
        let own = Arc::clone(config);
        let made = aside(move || {
            let mut client = own.client();
            if requests == Requests::Single {
                client.set("batch.num.messages", "1");
            }
            let listener = Listener { trouble: sender, config: own };
            Producer::from_config_and_context(&client, listener)
        });
        match made.await? {
            Ok(producer) => Ok(Self(Arc::new(Owned { producer: Some(producer), trouble }))),
            Err(error) => Err(unusable(config, &error)),
        }
    }

    /// Asks the brokers about topics, until they answer or refuse to talk.
    async fn ask(&self, config: &Arc<KafkaConfig>, asked: Asked) -> Result<Metadata, Outcome> {
        let (link, topic) = (self.clone(), config.topic.clone());
        let limit = config.limit * 3 / 4;
        let answer = aside(move || {
            let Some(producer) = &link.0.producer else { return Err(KafkaError::Canceled) };
            let topic = match asked {
                Asked::Topic => Some(topic.as_str()),
                Asked::Everything => None,
            };
            producer.client().fetch_metadata(topic, limit)
        });
        let mut trouble = self.0.trouble.clone();
        tokio::select! {
            answer = answer => answer?.map_err(|error| {
                let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                classify(config, code, self.trouble().as_ref())
            }),
            // The producer would go on trying until the time is up.
            refused = trouble.wait_for(|trouble| trouble.as_ref().is_some_and(Trouble::is_refusal)) => {
                let trouble = refused.ok().and_then(|trouble| trouble.clone());
                Err(classify(config, Code::AllBrokersDown, trouble.as_ref()))
            }
        }
    }

    /// Hands a record to librdkafka. Never waits.
    ///
    /// # Errors
    /// What librdkafka says at once, and the record.
    pub(super) fn send(
        &self,
        topic: &str,
        index: usize,
        mut record: Record,
        tray: &Arc<Tray>,
    ) -> Result<(), (Code, Record)> {
        let Some(producer) = &self.0.producer else { return Err((Code::Fatal, record)) };
        let ticket = Ticket { index, tray: Arc::clone(tray) };
        let sent = BaseRecord::with_opaque_to(topic, Box::new(ticket))
            .key(&record.key)
            .payload(&record.body)
            .headers(record.headers);
        // It may be back before the call is.
        tray.expect();
        match producer.send(sent) {
            Ok(()) => Ok(()),
            Err((error, BaseRecord { headers, .. })) => {
                tray.expect_less();
                let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                record.headers = headers.unwrap_or_default();
                Err((code, record))
            }
        }
    }

    /// The last trouble with the brokers, unless all has been well since.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.0.trouble.borrow().clone()
    }

    /// All is well.
    pub(super) fn is_well(&self) {
        let Some(producer) = &self.0.producer else { return };
        let trouble = &producer.context().trouble;
        if trouble.borrow().is_some() {
            trouble.send_replace(None);
        }
    }

    /// Why the producer cannot go on: an idempotent one cannot once its sequence is broken, or
    /// when it gets no id.
    pub(super) fn fatal(&self) -> Option<Code> {
        let producer = self.0.producer.as_ref()?;
        producer.client().fatal_error().map(|(code, _)| code)
    }
}

enum Asked {
    Topic,
    Everything,
}

/// Hears what librdkafka says.
pub(super) struct Listener {
    trouble: watch::Sender<Option<Trouble>>,
    config: Arc<KafkaConfig>,
}

impl ClientContext for Listener {
    /// Outcomes carry what matters, and logs may carry secrets.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        let trouble = Trouble { code, reason: self.config.settings.redact(reason) };
        self.trouble.send_if_modified(|last| {
            // That all brokers are down follows from what was said before it, and says less.
            let says_more = match last {
                None => true,
                Some(last) => {
                    code != Code::AllBrokersDown && (trouble.is_refusal() || !last.is_refusal())
                }
            };
            if says_more {
                *last = Some(trouble);
            }
            says_more
        });
    }
}

impl ProducerContext for Listener {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let error = match result {
            Ok(_) => None,
            Err((error, _)) => Some(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        ticket.tray.put((ticket.index, error));
    }
}

/// Runs what blocks on a thread of its own.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, Outcome>> {
    let (done, result) = oneshot::channel();
    let work = move || drop(done.send(work()));
    let started = std::thread::Builder::new().name("kafka".to_owned()).spawn(work);
    async move {
        started.map_err(|error| Outcome::retry(format!("no thread for Kafka: {error}")))?;
        result.await.map_err(|_| Outcome::retry("a thread for Kafka has ended"))
    }
}
