//! One connection to NATS, and what happens to it.

use super::NatsConfig;
use super::classify::{Failure, classify_connect, unreadable};
use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, ServerAddr, ServerError};
use postroom_core::Outcome;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::broadcast;

/// How many subjects are remembered as used.
const SUBJECTS_MAX: usize = 10_000;

/// A connection.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    events: broadcast::Sender<Event>,
    used: Arc<Mutex<HashSet<String>>>,
}

/// What the server says, or its silence, without being asked.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Publishing to this subject is not allowed.
    Forbidden(String),
    /// The connection has ended.
    Lost,
}

/// What happens from now on.
pub(super) struct Events(broadcast::Receiver<Event>);

impl Events {
    pub(super) async fn next(&mut self) -> Event {
        loop {
            match self.0.recv().await {
                Ok(event) => return event,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Event::Lost,
            }
        }
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    pub(super) fn events(&self) -> Events {
        Events(self.events.subscribe())
    }

    /// Asks a question that nobody answers. The server's word on that shows that it has dealt
    /// with everything before it; a flush of the client would not.
    pub(super) async fn round_trip(&self) -> Result<(), Failure> {
        let question = self.client.new_inbox();
        let mut events = self.events();
        let forbidden = async {
            loop {
                match events.next().await {
                    Event::Forbidden(subject) if subject == question => return Ok(()),
                    Event::Forbidden(_) => {}
                    Event::Lost => return Err(Failure::Lost),
                }
            }
        };
        let asked = self.client.request(question.clone(), "".into());
        tokio::select! {
            answer = asked => match answer.map_err(|error| error.kind()) {
                Ok(_) | Err(RequestErrorKind::NoResponders) => Ok(()),
                Err(RequestErrorKind::TimedOut) => Err(Failure::TimedOut),
                Err(_) => Err(Failure::Lost),
            },
            // That it may not be asked is an answer as well.
            answer = forbidden => answer,
        }
    }

    /// Whether one of these subjects is used for the first time.
    pub(super) fn is_new<'a>(&self, subjects: impl Iterator<Item = &'a str>) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() > SUBJECTS_MAX {
            used.clear();
        }
        let mut is_new = false;
        for subject in subjects {
            is_new |= !used.contains(subject) && used.insert(subject.to_owned());
        }
        is_new
    }
}

/// Connects and logs in.
pub(super) async fn connect(config: NatsConfig) -> Result<Link, Outcome> {
    let place = config.endpoint.place();
    let (events, _) = broadcast::channel(1024);
    let happened = events.clone();
    let mut options = ConnectOptions::new()
        .name("postroom")
        .connection_timeout(config.limit)
        .request_timeout(Some(config.limit))
        // Lost is lost: a new connection is made beside, and what was under way is told at once
        // instead of being sent again later.
        .max_reconnects(1)
        .event_callback(move |event| {
            let event = match event {
                async_nats::Event::ServerError(ServerError::Other(text)) => {
                    forbidden_subject(&text).map(Event::Forbidden)
                }
                async_nats::Event::Disconnected | async_nats::Event::Closed => Some(Event::Lost),
                _ => None,
            };
            if let Some(event) = event {
                // Nobody may be listening.
                let _ = happened.send(event);
            }
            std::future::ready(())
        });
    if let Some(file) = &config.credentials_file {
        options = options.credentials_file(file).await.map_err(|error| unreadable(file, &error))?;
    }
    if let Some(file) = &config.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let Some(login) = config.endpoint.login {
        options = match login.password {
            Some(password) => options.user_and_password(login.user, password),
            None => options.token(login.user),
        };
    }
    let server = ServerAddr::from_url(config.endpoint.url.clone())
        .map_err(|error| Outcome::refuse(format!("{place} cannot be used: {error}")))?;
    let client = options.connect(server).await.map_err(|error| classify_connect(&place, &error))?;
    let jetstream = ContextBuilder::new()
        .timeout(config.limit)
        .ack_timeout(config.limit)
        // Lanes bound what is under way; this only must not come first.
        .max_ack_inflight(1 << 20)
        .build(client.clone());
    Ok(Link { client, jetstream, events, used: Arc::default() })
}

/// The subject in `Permissions Violation for Publish to "orders"`.
fn forbidden_subject(text: &str) -> Option<String> {
    let rest = text.split_once("Permissions Violation for Publish to \"")?.1;
    Some(rest.split_once('"')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_subject_is_read_from_the_servers_words() {
        let words = "Permissions Violation for Publish to \"Orders.v1\"";
        assert_eq!(forbidden_subject(words).as_deref(), Some("Orders.v1"));
        assert_eq!(forbidden_subject("Permissions Violation for Subscription to \"a\""), None);
        assert_eq!(forbidden_subject("Maximum Payload Violation"), None);
    }
}
