//! One connection to Redis, or to the nodes of a cluster.

use super::RedisConfig;
use super::classify::classify_connect;
use crate::endpoint::Endpoint;
use crate::tls;
use ::redis::aio::MultiplexedConnection;
use ::redis::cluster::ClusterClient;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    Pipeline, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value, cmd,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postroom_core::Outcome;
use std::collections::HashMap;

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
    let place = config.endpoint.place();
    let root_cert = match &config.ca_file {
        None if config.endpoint.url.scheme() == "rediss" => Some(system_authorities()),
        None => None,
        Some(file) => Some(tls::read_ca_file(file).await?),
    };
    let certificates =
        root_cert.map(|root_cert| TlsCertificates { client_tls: None, root_cert: Some(root_cert) });
    let info = info(&config.endpoint).map_err(|error| classify_connect(&place, &error))?;
    let linked = if config.is_cluster {
        cluster(&config, info, certificates).await
    } else {
        one(&config, info, certificates).await
    };
    linked.map_err(|error| classify_connect(&place, &error))
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

async fn one(
    config: &RedisConfig,
    info: ConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> Result<Link, RedisError> {
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    };
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.limit))
        .set_response_timeout(Some(config.limit));
    client.get_multiplexed_async_connection_with_config(&settings).await.map(Link::One)
}

async fn cluster(
    config: &RedisConfig,
    info: ConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> Result<Link, RedisError> {
    let mut builder = ClusterClient::builder([info])
        .connection_timeout(config.limit)
        .response_timeout(config.limit)
        // For moved slots; all else is the relay's to retry.
        .retries(3);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build()?.get_async_connection().await.map(Link::Cluster)
}

fn info(endpoint: &Endpoint) -> RedisResult<ConnectionInfo> {
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    let address = match endpoint.url.scheme() {
        "rediss" => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        _ => ConnectionAddr::Tcp(host, port),
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
