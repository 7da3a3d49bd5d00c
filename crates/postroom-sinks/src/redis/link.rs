//! One connection to Redis, or to the nodes of a cluster.

use super::classify::classify_connect;
use super::servers::Servers;
use super::{RedisConfig, sentinel};
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::tls;
use ::redis::aio::MultiplexedConnection;
use ::redis::cluster::ClusterClient;
use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    Pipeline, RedisConnectionInfo, RedisResult, TlsCertificates, Value, cmd, from_redis_value,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postroom_core::Outcome;
use std::collections::HashMap;
use std::time::Duration;

/// The server's setting for the longest value.
const VALUE_LIMIT: &str = "proto-max-bulk-len";
const VALUE_LIMIT_USUAL: u64 = 512 << 20;

/// A connection.
#[derive(Clone)]
pub(super) enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    /// One answer for each command, or why there is none.
    pub(super) async fn send(
        &mut self,
        pipeline: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        match self {
            Self::One(connection) => pipeline.query_async(connection).await,
            Self::Cluster(connection) => pipeline.query_async(connection).await,
        }
    }

    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        let ping = cmd("PING");
        match self {
            Self::One(connection) => ping.query_async(connection).await,
            Self::Cluster(connection) => ping.query_async(connection).await,
        }
    }

    /// How many bytes a value may have. Who may not ask, as is common where Redis is rented, is told
    /// what it is unless somebody has changed it.
    pub(super) async fn value_limit(&mut self) -> RedisResult<u64> {
        let mut ask = cmd("CONFIG");
        ask.arg("GET").arg(VALUE_LIMIT);
        let answer: RedisResult<HashMap<String, u64>> = match self {
            Self::One(connection) => ask.query_async(connection).await,
            Self::Cluster(connection) => ask.query_async(connection).await,
        };
        match answer {
            Ok(settings) => Ok(settings.get(VALUE_LIMIT).copied().unwrap_or(VALUE_LIMIT_USUAL)),
            Err(error) if error.code().is_some() => Ok(VALUE_LIMIT_USUAL),
            Err(error) => Err(error),
        }
    }
}

/// Connects and logs in.
pub(super) async fn connect(config: RedisConfig) -> Result<Link, Outcome> {
    let certificates = certificates(&config).await?;
    let place = config.servers.place();
    let linked = match &config.servers {
        Servers::One(server) => one(server, config.limit, certificates).await.map(Link::One),
        Servers::Cluster(seeds) => cluster(seeds, config.limit, certificates).await,
        Servers::Sentinels { sentinels, primary } => {
            return sentinel::connect(sentinels, primary, config.limit, certificates).await;
        }
    };
    linked.map_err(|error| classify_connect(&place, &error))
}

async fn certificates(config: &RedisConfig) -> Result<Option<TlsCertificates>, Outcome> {
    let root_cert = match &config.ca_file {
        None if config.servers.use_tls() => system_authorities(),
        None => return Ok(None),
        Some(file) => tls::read_ca_file(file).await?,
    };
    Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(root_cert) }))
}

/// The system's authorities as PEM. Left to itself, redis-rs trusts a list that is compiled into
/// it, as soon as any part of the program asks for that list.
fn system_authorities() -> Vec<u8> {
    let mut pem = String::new();
    // One that cannot be read is one that is not trusted.
    for certificate in rustls_native_certs::load_native_certs().certs {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        pem.push_str(&STANDARD.encode(certificate.as_ref()));
        pem.push_str("\n-----END CERTIFICATE-----\n");
    }
    pem.into_bytes()
}

/// Connects to one server within `limit`, which is also the limit of an answer.
pub(super) async fn one(
    server: &Endpoint,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> RedisResult<MultiplexedConnection> {
    let info = info(server)?;
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    client.get_multiplexed_async_connection_with_config(&settings).await
}

/// Connects to a cluster by any of its nodes that answers, and remembers the nodes that it names.
async fn cluster(
    seeds: &Endpoints,
    limit: Duration,
    certificates: Option<TlsCertificates>,
) -> RedisResult<Link> {
    let nodes = seeds.all().iter().map(info).collect::<RedisResult<Vec<_>>>()?;
    let mut builder = ClusterClient::builder(nodes)
        // Half: a node that does not answer must leave time for those that do.
        .connection_timeout(limit / 2)
        .response_timeout(limit)
        // For moved slots; all else is the relay's to retry.
        .retries(3);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    let mut connection = builder.build()?.get_async_connection().await?;
    let mut ask = cmd("CLUSTER");
    ask.arg("SLOTS");
    let anyone = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    // Without an answer the seeds that are known have to do.
    if let Ok(slots) = connection.route_command(ask, anyone).await {
        seeds.learn(nodes_of(slots));
    }
    Ok(Link::Cluster(connection))
}

/// The host and port of every node in an answer to CLUSTER SLOTS: ranges of slots, each with its
/// first and last, and then its nodes.
fn nodes_of(slots: Value) -> Vec<(String, u16)> {
    let ranges: Vec<Vec<Value>> = from_redis_value(slots).unwrap_or_default();
    let nodes = ranges.into_iter().flat_map(|range| range.into_iter().skip(2));
    let addresses = nodes.filter_map(|node| {
        let mut parts = from_redis_value::<Vec<Value>>(node).ok()?.into_iter();
        // An unknown host is null, or a question mark.
        let host: String = from_redis_value(parts.next()?).ok()?;
        // What is too large for a port would be cut off by the client.
        let port: i64 = from_redis_value(parts.next()?).ok()?;
        let port = u16::try_from(port).ok()?;
        (!host.is_empty() && host != "?").then_some((host, port))
    });
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn info(endpoint: &Endpoint) -> RedisResult<ConnectionInfo> {
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    let address = if endpoint.url.scheme().starts_with("rediss") {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    };
    let mut settings = RedisConnectionInfo::default();
    settings = settings.set_db(database(endpoint).unwrap_or_default());
    if let Some(login) = &endpoint.login {
        if !login.user.is_empty() {
            settings = settings.set_username(&login.user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
    }
    Ok(address.into_connection_info()?.set_redis_settings(settings))
}

/// The number of the database in the URL's path.
pub(super) fn database(endpoint: &Endpoint) -> Result<i64, &'static str> {
    match endpoint.url.path().trim_start_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| "has a path that is no number of a database"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_cluster_are_read_and_unknown_hosts_left_out() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range =
            |nodes: Vec<Value>| Value::Array([vec![Value::Int(0), Value::Int(5)], nodes].concat());
        let slots = Value::Array(vec![
            range(vec![node(text("b"), 2), node(text("a"), 1)]),
            range(vec![node(text("a"), 1), node(Value::Nil, 3), node(text("?"), 3)]),
            range(vec![node(text(""), 3), node(text("c"), -1), Value::Int(1)]),
        ]);
        assert_eq!(nodes_of(slots), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert!(nodes_of(Value::Okay).is_empty());
    }
}
