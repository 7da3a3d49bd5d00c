//! One connection to RabbitMQ, and its channels.

use super::RabbitConfig;
use super::classify::classify_connect;
use crate::endpoint::Endpoint;
use crate::tls;
use lapin::options::ConfirmSelectOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionBuilder, ConnectionProperties};
use percent_encoding::percent_decode_str;
use postroom_core::Outcome;
use std::sync::{Arc, Mutex, PoisonError};

/// How soon a broker that has gone silent is noticed while nothing is under way, in seconds.
const HEARTBEAT: u16 = 15;

/// A connection.
#[derive(Clone)]
pub(super) struct Link {
    connection: Arc<Connection>,
    /// Channels that nobody uses at the moment.
    idle: Arc<Mutex<Vec<Channel>>>,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.connection.status().connected()
    }

    /// A channel with confirms, for one batch at a time.
    pub(super) async fn take_channel(&self) -> Result<Channel, lapin::Error> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// For the next batch.
    pub(super) fn give_back(&self, channel: Channel) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(channel);
    }
}

/// Connects to the first broker that accepts, and logs in.
pub(super) async fn connect(config: RabbitConfig) -> Result<Link, Outcome> {
    let cert_chain = match &config.ca_file {
        None => None,
        Some(file) => Some(String::from_utf8_lossy(&tls::read_ca_file(file).await?).into_owned()),
    };
    let connecting = async |endpoint: Endpoint, _| connect_to(&endpoint, cert_chain.clone()).await;
    config.endpoints.connect(config.limit, connecting).await
}

async fn connect_to(endpoint: &Endpoint, cert_chain: Option<String>) -> Result<Link, Outcome> {
    let failed = |error| classify_connect(&endpoint.place(), &error);
    let properties = ConnectionProperties::default().with_connection_name("postroom".into());
    let builder = ConnectionBuilder::new()
        .map_err(failed)?
        .with_uri(uri(endpoint)?)
        .with_properties(properties)
        .with_tls_config(OwnedTLSConfig { identity: None, cert_chain });
    let connection = builder.connect().await.map_err(failed)?;
    Ok(Link { connection: Arc::new(connection), idle: Arc::default() })
}

fn uri(endpoint: &Endpoint) -> Result<AMQPUri, Outcome> {
    let path = endpoint.url.path();
    let vhost = match path.strip_prefix('/').unwrap_or(path) {
        "" => "/".to_owned(),
        name => percent_decode_str(name)
            .decode_utf8()
            .map_err(|_| {
                Outcome::refuse("the virtual host in the integration's `url` is not UTF-8: fix it")
            })?
            .into_owned(),
    };
    let userinfo = match &endpoint.login {
        Some(login) => AMQPUserInfo {
            username: login.user.clone(),
            password: login.password.clone().unwrap_or_default(),
        },
        None => AMQPUserInfo::default(),
    };
    let is_tls = endpoint.url.scheme() == "amqps";
    let port = endpoint.port();
    Ok(AMQPUri {
        scheme: if is_tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority { userinfo, host: endpoint.host().to_owned(), port },
        vhost,
        query: AMQPQueryString { heartbeat: Some(HEARTBEAT), ..Default::default() },
    })
}
