//! One connection to an MQTT broker, and what waits for its acknowledgements.

use super::MqttConfig;
use super::classify::{Failure, Refusal, classify_connect};
use super::packet::Packet;
use crate::tls;
use postroom_core::Outcome;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnAckProperties, Packet as Incoming, PubAckReason, PubCompReason, PubRecReason,
};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions, Request};
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How many messages may be under way on one connection.
const IN_FLIGHT_MAX: u16 = 1000;
/// How many may wait for their turn.
const WAITING_MAX: usize = 65_536;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Answer = Result<(), Failure>;

/// A connection.
#[derive(Clone)]
pub(super) struct Link {
    client: AsyncClient,
    waiting: Arc<Mutex<Waiting>>,
    packet_bytes_max: Option<usize>,
    _driver: Arc<Driver>,
}

/// The task that moves the connection; it ends with the last user.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Who waits for an acknowledgement. The client tells the packet identifiers in the order in
/// which messages were handed to it, and each answer by its identifier.
#[derive(Default)]
struct Waiting {
    handed_over: VecDeque<oneshot::Sender<Answer>>,
    sent: HashMap<u16, oneshot::Sender<Answer>>,
    ended: Option<Failure>,
    /// After a refusal the client counts wrongly what is under way, and would come to a stop in
    /// time.
    is_miscounted: bool,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        lock(&self.waiting).ended.is_none()
    }

    /// Hands a message over. Nothing is awaited in here: a caller that is dropped in between
    /// would leave an order behind that is not that of the client.
    pub(super) fn publish(
        &self,
        packet: Packet,
        qos: QoS,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let bytes = packet.size();
        if let Some(limit) = self.packet_bytes_max.filter(|limit| bytes > *limit) {
            return Err(Failure::TooLarge { bytes, limit });
        }
        let mut waiting = lock(&self.waiting);
        if let Some(failure) = &waiting.ended {
            return Err(failure.clone());
        }
        let Packet { topic, properties, body } = packet;
        self.client
            .try_publish_with_properties(topic, qos, false, body, properties)
            .map_err(|_| Failure::Lost("too many messages wait for their turn".to_owned()))?;
        // The driver cannot have heard of it before: that, too, needs the lock.
        let (sender, receiver) = oneshot::channel();
        waiting.handed_over.push_back(sender);
        Ok(receiver)
    }
}

impl Waiting {
    fn answer(&mut self, id: u16, answer: Answer) {
        if let Some(sender) = self.sent.remove(&id) {
            self.is_miscounted |= answer.is_err();
            // Nobody may be waiting any more.
            let _ = sender.send(answer);
        }
    }

    fn end(&mut self, failure: &Failure) {
        self.ended = Some(failure.clone());
        for sender in self.handed_over.drain(..).chain(self.sent.drain().map(|(_, sender)| sender))
        {
            let _ = sender.send(Err(failure.clone()));
        }
    }
}

/// Connects and logs in.
pub(super) async fn connect(config: MqttConfig) -> Result<Link, Outcome> {
    let place = config.endpoint.place();
    let (client, mut events) = AsyncClient::new(options(&config).await?, WAITING_MAX);
    let greeting = loop {
        match events.poll().await {
            Ok(Event::Incoming(Incoming::ConnAck(greeting))) => break greeting,
            Ok(_) => {}
            Err(error) => return Err(classify_connect(&place, &error)),
        }
    };
    let limits = greeting.properties;
    let qos_max = limits.as_ref().and_then(|limits| limits.max_qos).unwrap_or(2);
    if qos_max < config.qos as u8 {
        return Err(Outcome::refuse(format!(
            "{place} allows no QoS above {qos_max}: set the integration's `qos` to that, or change \
             the broker"
        )));
    }
    let waiting: Arc<Mutex<Waiting>> = Arc::default();
    let driver = tokio::spawn(drive(events, Arc::clone(&waiting)));
    Ok(Link {
        client,
        waiting,
        packet_bytes_max: limits.as_ref().and_then(packet_bytes_max),
        _driver: Arc::new(Driver(driver.abort_handle())),
    })
}

fn packet_bytes_max(limits: &ConnAckProperties) -> Option<usize> {
    usize::try_from(limits.max_packet_size?).ok()
}

async fn options(config: &MqttConfig) -> Result<MqttOptions, Outcome> {
    let endpoint = &config.endpoint;
    // Two clients of one name throw each other out.
    let name = format!("postroom-{:016x}", RandomState::new().hash_one(()));
    let mut options = MqttOptions::new(name, endpoint.host(), endpoint.port());
    options
        .set_clean_start(true)
        .set_keep_alive(KEEP_ALIVE)
        .set_outgoing_inflight_upper_limit(IN_FLIGHT_MAX)
        .set_connection_timeout(config.limit.as_secs().max(1));
    if let Some(login) = &endpoint.login {
        options.set_credentials(&login.user, login.password.as_deref().unwrap_or_default());
    }
    if endpoint.url.scheme() == "mqtts" {
        let config = tls::client_config(config.ca_file.as_deref()).await?;
        options.set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(config)));
    }
    Ok(options)
}

/// Moves the connection until it ends.
async fn drive(mut events: EventLoop, waiting: Arc<Mutex<Waiting>>) {
    loop {
        let event = events.poll().await;
        let mut waiting = lock(&waiting);
        match event {
            Ok(Event::Outgoing(Outgoing::Publish(id))) => {
                if let Some(sender) = waiting.handed_over.pop_front() {
                    waiting.sent.insert(id, sender);
                }
            }
            Ok(Event::Incoming(Incoming::PubAck(answer))) => {
                waiting.answer(answer.pkid, judge(Refusal::of_ack(answer.reason)));
            }
            Ok(Event::Incoming(Incoming::PubRec(answer))) => {
                // Received is not yet complete.
                if let Some(refusal) = Refusal::of_rec(answer.reason) {
                    waiting.answer(answer.pkid, Err(Failure::Refused(refusal)));
                }
            }
            Ok(Event::Incoming(Incoming::PubComp(answer))) => {
                let refusal = match answer.reason {
                    PubCompReason::Success => None,
                    PubCompReason::PacketIdentifierNotFound => Some(Refusal::Unspecified),
                };
                waiting.answer(answer.pkid, judge(refusal));
            }
            Ok(_) => {}
            Err(error) => return waiting.end(&Failure::Lost(error.to_string())),
        }
        // At the latest when the client has come to a stop, all that it sent is answered.
        if waiting.is_miscounted && waiting.sent.is_empty() && events.state.events.is_empty() {
            waiting.is_miscounted = false;
            count_anew(&mut events);
        }
    }
}

/// Lets the client begin to count at zero, as is right when nothing is under way. It takes refused
/// messages for such, and one for whose packet identifier it waits misses that a refusal freed it.
fn count_anew(events: &mut EventLoop) {
    events.state.clean();
    events.pending.extend(events.state.collision.take().map(Request::Publish));
}

fn judge(refusal: Option<Refusal>) -> Answer {
    refusal.map_or(Ok(()), |refusal| Err(Failure::Refused(refusal)))
}

impl Refusal {
    /// What a PUBACK says; `None`: all is well. That nobody subscribes is no refusal.
    fn of_ack(reason: PubAckReason) -> Option<Self> {
        match reason {
            PubAckReason::Success | PubAckReason::NoMatchingSubscribers => None,
            PubAckReason::UnspecifiedError => Some(Self::Unspecified),
            PubAckReason::ImplementationSpecificError => Some(Self::ImplementationSpecific),
            PubAckReason::NotAuthorized => Some(Self::NotAuthorized),
            PubAckReason::TopicNameInvalid => Some(Self::TopicNameInvalid),
            PubAckReason::PacketIdentifierInUse => Some(Self::PacketIdentifierInUse),
            PubAckReason::QuotaExceeded => Some(Self::QuotaExceeded),
            PubAckReason::PayloadFormatInvalid => Some(Self::PayloadFormatInvalid),
        }
    }

    /// The same for a PUBREC.
    fn of_rec(reason: PubRecReason) -> Option<Self> {
        match reason {
            PubRecReason::Success | PubRecReason::NoMatchingSubscribers => None,
            PubRecReason::UnspecifiedError => Some(Self::Unspecified),
            PubRecReason::ImplementationSpecificError => Some(Self::ImplementationSpecific),
            PubRecReason::NotAuthorized => Some(Self::NotAuthorized),
            PubRecReason::TopicNameInvalid => Some(Self::TopicNameInvalid),
            PubRecReason::PacketIdentifierInUse => Some(Self::PacketIdentifierInUse),
            PubRecReason::QuotaExceeded => Some(Self::QuotaExceeded),
            PubRecReason::PayloadFormatInvalid => Some(Self::PayloadFormatInvalid),
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
