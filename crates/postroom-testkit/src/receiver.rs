//! An HTTP receiver on loopback that records what arrives and misbehaves on demand.

mod connection;
mod service;

use crate::eventually::within;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use service::Service;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the receiver does with a request, named after what physically happens.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Behaviour {
    /// Answers 200.
    #[default]
    Accept,
    /// Answers with this status.
    Answer(u16),
    /// Answers with this status and one header, e.g. `Retry-After`.
    AnswerWithHeader(u16, &'static str, String),
    /// Does the work, and answers 200 only once [`Receiver::release`] is called.
    HoldResponse,
    /// Does the work, and answers 200 after this time.
    RespondSlowly(Duration),
    /// Does the work, then resets the connection: the sender never learns of it.
    ResetAfterWork,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// When it had arrived as a whole.
    pub at: Instant,
}

impl Request {
    /// A header's value, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("the body is no JSON: {error}: {:?}", self.body))
    }
}

/// An HTTP receiver on a loopback port of its own; it stops listening when it is dropped.
///
/// It runs on a thread of its own, so that a test which blocks its runtime does not stop it.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    script: Arc<Script>,
    /// `None` while it refuses connections.
    service: Mutex<Option<Service>>,
}

impl Receiver {
    /// Starts a receiver that accepts everything.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let script = Arc::new(Script::default());
        let service = Service::start(listener, script.clone());
        Self { address, script, service: Mutex::new(Some(service)) }
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, e.g. `http://127.0.0.1:34567/`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Does this with every request that has no behaviour of its own.
    pub fn always(&self, behaviour: Behaviour) {
        self.script.state().always = behaviour;
    }

    /// Does these with the next requests, one each, before what it always does.
    pub fn next(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.script.state().next.extend(behaviours);
    }

    /// Answers 413 to bodies that are larger, and keeps no record of them.
    pub fn limit(&self, body_bytes_max: usize) {
        self.script.state().body_bytes_max = Some(body_bytes_max);
    }

    /// Answers every request that is held now.
    pub fn release(&self) {
        self.script.releases.send_modify(|count| *count += 1);
    }

    /// Closes every connection and refuses new ones, until [`listen`](Self::listen).
    pub fn refuse(&self) {
        *self.service.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Listens again, on the same port.
    ///
    /// # Panics
    /// When someone else has taken the port meanwhile.
    pub fn listen(&self) {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        if service.is_none() {
            let listener = TcpListener::bind(self.address)
                .unwrap_or_else(|error| panic!("listening on {} again: {error}", self.address));
            *service = Some(Service::start(listener, self.script.clone()));
        }
    }

    /// What has arrived so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.script.state().requests.clone()
    }

    /// How many requests have arrived so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.script.state().requests.len()
    }

    /// Waits until at least `count` requests have arrived, and returns all that have.
    ///
    /// # Panics
    /// When there are fewer within `deadline`; the message says how many.
    pub async fn wait_for(&self, count: usize, deadline: Duration) -> Vec<Request> {
        let look = async || (self.count() >= count).then(|| self.requests());
        match within(deadline, look).await {
            Some(requests) => requests,
            None => panic!("{} of {count} requests within {deadline:?}", self.count()),
        }
    }
}

/// What the test has asked for, and what has arrived.
#[derive(Debug, Default)]
struct Script {
    state: Mutex<State>,
    releases: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    next: VecDeque<Behaviour>,
    always: Behaviour,
    body_bytes_max: Option<usize>,
    requests: Vec<Request>,
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and says what to do with it, as one step: behaviours are handed out in
    /// the order of the record.
    fn record(&self, request: Request) -> Behaviour {
        let mut state = self.state();
        if state.body_bytes_max.is_some_and(|max| request.body.len() > max) {
            return Behaviour::Answer(413);
        }
        state.requests.push(request);
        let always = state.always.clone();
        state.next.pop_front().unwrap_or(always)
    }
}
