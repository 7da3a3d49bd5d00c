//! One connection to NATS, and what happens to it.

use super::NatsConfig;
use super::classify::{classify_connect, unreadable};
use super::rounds::Rounds;
use crate::endpoint::Endpoint;
use async_nats::connection::State;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, ServerAddr};
use postroom_core::Outcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// A connection.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    events: broadcast::Sender<Event>,
    pub(super) rounds: Arc<Rounds>,
}

/// What the server says, or its silence, without being asked.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Publishing to this subject is not allowed.
    Forbidden(String),
    /// What cannot be had was refused, for the so-many-eth time: see [`Rounds`].
    Answered(u64),
    /// Something was refused, or several things, and nobody knows what.
    Unclear,
    /// The connection has ended.
    Lost,
}

/// What happens from now on.
pub(super) struct Events(broadcast::Receiver<Event>);

impl Events {
    pub(super) async fn next(&mut self) -> Event {
        match self.0.recv().await {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(_)) => Event::Unclear,
            Err(broadcast::error::RecvError::Closed) => Event::Lost,
        }
    }
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected && !self.rounds.is_over()
    }

    pub(super) fn events(&self) -> Events {
        Events(self.events.subscribe())
    }
}

/// Connects to the first server that accepts, and logs in.
pub(super) async fn connect(config: NatsConfig) -> Result<Link, Outcome> {
    let connecting = async |endpoint: Endpoint, limit| connect_to(&config, &endpoint, limit).await;
    let link = config.endpoints.connect(config.limit, connecting).await?;
    // Each server of a cluster names the others.
    let named = link.client.server_info().connect_urls;
    config.endpoints.learn(named.iter().filter_map(|server| {
        let (host, port) = server.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    }));
    Ok(link)
}

async fn connect_to(
    config: &NatsConfig,
    endpoint: &Endpoint,
    limit: Duration,
) -> Result<Link, Outcome> {
    let place = endpoint.place();
    let (events, _) = broadcast::channel(1024);
    let rounds = Arc::new(Rounds::default());
    let (hearing, happened) = (Arc::clone(&rounds), events.clone());
    let mut options = ConnectOptions::new()
        .name("postroom")
        .connection_timeout(limit)
        .request_timeout(Some(config.limit))
        // Lost is lost: a new connection is made beside, and what was under way is told at once
        // instead of being sent again later.
        .max_reconnects(1)
        .event_callback(move |event| {
            hearing.hear(event, &happened);
            std::future::ready(())
        });
    if let Some(file) = &config.credentials_file {
        options = options.credentials_file(file).await.map_err(|error| unreadable(file, &error))?;
    }
    if let Some(file) = &config.ca_file {
        options = options.add_root_certificates(file.clone());
    }
    if let Some(login) = &endpoint.login {
        options = match &login.password {
            Some(password) => options.user_and_password(login.user.clone(), password.clone()),
            None => options.token(login.user.clone()),
        };
    }
    let server = ServerAddr::from_url(endpoint.url.clone())
        .map_err(|error| Outcome::refuse(format!("{place} cannot be used: {error}")))?;
    let client = options.connect(server).await.map_err(|error| classify_connect(&place, &error))?;
    let jetstream = ContextBuilder::new()
        .timeout(config.limit)
        .ack_timeout(config.limit)
        // Lanes bound what is under way; this only must not come first.
        .max_ack_inflight(1 << 20)
        .build(client.clone());
    Ok(Link { client, jetstream, events, rounds })
}
