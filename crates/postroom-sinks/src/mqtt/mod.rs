//! The sink that publishes to an MQTT broker, version 5, with QoS 1 or 2.
//!
//! A message is delivered once the broker has answered it by PUBACK or PUBCOMP, whether or not
//! anyone subscribes to its topic. Its attributes travel as user properties.

mod classify;
mod link;
mod packet;

use crate::batch::Batch;
use crate::connections::Connections;
use crate::endpoint::Endpoint;
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::template::Template;
use crate::tls;
use crate::wrapping::Wrapping;
use async_trait::async_trait;
use classify::{Failure, classify};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use link::Link;
use packet::Packet;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use rumqttc::v5::mqttbytes::QoS;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "mqtt",
    keys: &["url", "topic", "qos", "ca_file", "format", "idempotency_key"],
    concurrency: 4,
    timeout: Duration::from_secs(10),
    read: |options, to| MqttConfig::read(options, to).map(SinkConfig::new),
};

/// Which broker, which topic, and how surely.
#[derive(Clone, Debug)]
pub(crate) struct MqttConfig {
    endpoint: Endpoint,
    topic: Template,
    qos: QoS,
    ca_file: Option<PathBuf>,
    wrapping: Wrapping,
    /// How long a batch may take.
    limit: Duration,
}

impl MqttConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let endpoint = Endpoint::read(options, &[("mqtt", 1883), ("mqtts", 8883)]);
        let topic = Template::read(options, "topic", to.channel());
        let qos = match options.optional::<u8>("qos", "1 or 2") {
            None | Some(1) => QoS::AtLeastOnce,
            Some(2) => QoS::ExactlyOnce,
            Some(_) => {
                options.fault(&["qos"], "must be 1 or 2: with 0 nobody acknowledges", None);
                QoS::AtLeastOnce
            }
        };
        let ca_file = options.optional("ca_file", "the path of a file of certificates");
        let wrapping = Wrapping::read(options);
        let limit = to.own_timeout();
        let (endpoint, topic) = (endpoint?, topic?);
        Some(Self { endpoint, topic, qos, ca_file, wrapping, limit })
    }
}

impl Build for MqttConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        tls::choose_provider();
        let config = self.clone();
        let connections = Connections::new(self.limit, move || link::connect(config.clone()));
        Ok(Arc::new(MqttSink { config: self.clone(), connections }))
    }
}

/// Publishes over one connection that all batches share.
struct MqttSink {
    config: MqttConfig,
    connections: Connections<Link>,
}

impl MqttSink {
    /// Publishes in order, and takes the acknowledgements as they come.
    async fn publish(&self, link: &Link, packets: Vec<(usize, Packet)>, batch: &Batch<'_>) {
        let mut waiting = FuturesUnordered::new();
        for (index, packet) in packets {
            match link.publish(packet, self.config.qos) {
                Ok(acknowledged) => waiting.push(async move { (index, acknowledged.await) }),
                Err(failure) => batch.settle(index, self.classify(&failure)),
            }
        }
        while let Some((index, answer)) = waiting.next().await {
            let outcome = match answer {
                Ok(Ok(())) => Outcome::Delivered,
                Ok(Err(failure)) => self.classify(&failure),
                Err(_) => self.classify(&Failure::Lost("the client ended".to_owned())),
            };
            batch.settle(index, outcome);
        }
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        let is_fixed = self.config.topic.fixed().is_some();
        classify(&self.config.endpoint.place(), is_fixed, failure)
    }
}

#[async_trait]
impl Sink for MqttSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        let packets = batch.prepare(messages, |index, message| {
            let topic = self.config.topic.render(message)?;
            Ok((index, Packet::new(topic, self.config.wrapping.wrap(message)?)?))
        });
        if packets.is_empty() {
            return;
        }
        let held = match self.connections.get_up(deadline, Link::is_up).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let publishing = self.publish(&held.connection, packets, &batch);
        if tokio::time::timeout_at(deadline, publishing).await.is_err() {
            // A connection on which nothing comes back is not worth keeping.
            self.connections.lost(&held);
            batch.settle_rest(&self.classify(&Failure::TimedOut));
        } else if !held.connection.is_up() {
            self.connections.lost(&held);
        }
    }

    /// Large enough to hide the way to the broker, small enough to be settled in time.
    fn batch_max(&self) -> usize {
        1000
    }

    /// Connects and logs in; MQTT has no way to ask for more.
    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.limit;
        self.connections.get_up(deadline, Link::is_up).await.map(drop).map_err(ProbeError::from)
    }
}
