//! Which Redis, and how its keys begin.

use crate::error::QueueError;
use crate::link::{self, Link};
use crate::queue::Streams;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bullmq::options::{RedisConnectionOptions, TlsCerts};
use futures_util::future::join_all;
use percent_encoding::percent_decode_str;
use postroom_core::url_per_host;
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo, RedisResult,
    TlsCertificates,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How long one of several nodes has to answer before it counts as away.
const NODE_ANSWER_MAX: Duration = Duration::from_secs(2);

/// What is configured about Redis.
#[derive(Clone, Default)]
pub struct RedisConfig {
    /// `redis://user:password@host:port/database`, or `rediss://` for TLS. The user of an ACL,
    /// the password and the database may be left out. Several nodes of a cluster are written
    /// `redis://a:6379,b:6379`: any of them that answers leads to the others.
    pub url: String,
    /// How all keys begin; `bull` when left out, as in BullMQ, and `{bull}` on a cluster.
    pub prefix: Option<String>,
    /// Whether the servers are nodes of a cluster.
    pub cluster: bool,
    /// The authority that vouches for the server's certificate; the system's when left out.
    pub ca_file: Option<PathBuf>,
}

impl RedisConfig {
    /// The URL of a host and a port, as `REDIS_HOST` and `REDIS_PORT` give them.
    #[must_use]
    pub fn url_of(host: &str, port: u16) -> String {
        if host.contains(':') && !host.starts_with('[') {
            format!("redis://[{host}]:{port}")
        } else {
            format!("redis://{host}:{port}")
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, prefix, cluster, ca_file } = self;
        f.debug_struct("RedisConfig")
            .field("prefix", prefix)
            .field("cluster", cluster)
            .field("ca_file", ca_file)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a [`RedisConfig`]: which of its keys, and why. It shows no secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{key}` {problem}")]
pub struct RedisFault {
    /// The key of the configuration.
    pub key: &'static str,
    /// What is wrong with it, and what to write instead.
    pub problem: String,
}

/// A Redis server or cluster. Its queues share one connection, which is made when it is needed
/// and made again after it is lost, and a second one for their events. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    pub(crate) server: Arc<Server>,
    pub(crate) link: Arc<Link>,
    pub(crate) streams: Arc<Streams>,
}

impl Redis {
    /// Reads the configuration. Nothing is connected yet.
    ///
    /// # Errors
    /// The first fault of the configuration.
    pub fn new(config: &RedisConfig) -> Result<Self, RedisFault> {
        let server = Arc::new(Server::read(config)?);
        let link = Arc::new(Link::new(Arc::clone(&server)));
        let streams = Arc::new(Streams::new(Arc::clone(&server), Arc::clone(&link)));
        Ok(Self { server, link, streams })
    }

    /// Host and port of each server that is named, for logs.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.server.place
    }

    /// Asks whether the server is there and lets us in.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn probe(&self) -> Result<(), QueueError> {
        self.link.ask::<()>(&redis::cmd("PING")).await
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.server.place).finish()
    }
}

/// The configuration once it is read.
pub(crate) struct Server {
    /// Host and port of each node, which is all of the URL that may be shown.
    pub(crate) place: String,
    pub(crate) prefix: String,
    pub(crate) is_cluster: bool,
    pub(crate) first: Node,
    /// More nodes of its cluster. Only their hosts and ports differ.
    others: Vec<Node>,
    is_tls: bool,
    user: String,
    password: Option<String>,
    database: i64,
    ca_file: Option<PathBuf>,
}

/// Where one server is.
pub(crate) struct Node {
    url: Url,
    host: String,
    port: u16,
}

impl Node {
    fn read(url: &str) -> Result<Self, String> {
        let url = Url::parse(url)
            .map_err(|error| format!("is no URL: {error}; write redis://host:6379"))?;
        if url.scheme().ends_with("+sentinel") {
            let problem = "names Sentinels, which BullMQ's client does not know: name the primary \
                           by an address that follows it";
            return Err(problem.to_owned());
        }
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err("must begin with redis:// or rediss://".to_owned());
        }
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() {
            return Err("names no host".to_owned());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port().unwrap_or(6379);
        Ok(Self { url, host, port })
    }

    fn place(&self) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.port)
    }
}

impl Server {
    fn read(config: &RedisConfig) -> Result<Self, RedisFault> {
        let fault = |problem: &str| RedisFault { key: "url", problem: problem.to_owned() };
        if config.url.matches("://").count() > 1 {
            return Err(fault("repeats its scheme: write it once, redis://a:6379,b:6379"));
        }
        let urls = url_per_host(&config.url);
        let mut nodes = urls.iter().map(|url| Node::read(url).map_err(|problem| fault(&problem)));
        let first = nodes.next().unwrap_or_else(|| Err(fault("names no host")))?;
        let others = nodes.collect::<Result<Vec<_>, _>>()?;
        if !others.is_empty() && !config.cluster {
            return Err(fault("names several hosts that are no cluster: set `cluster` to true"));
        }
        let places: Vec<_> = std::iter::once(&first).chain(&others).map(Node::place).collect();
        let (place, url) = (places.join(", "), &first.url);
        let is_tls = url.scheme() == "rediss";
        let decode = |text: &str| {
            percent_decode_str(text)
                .decode_utf8()
                .map(|text| text.into_owned())
                .map_err(|_| fault("has a user or password that is not UTF-8"))
        };
        let user = decode(url.username())?;
        let password = url.password().map(decode).transpose()?;
        let database = match url.path().trim_start_matches('/') {
            "" => 0,
            number => {
                number.parse().map_err(|_| fault("has a path that is no number of a database"))?
            }
        };
        if config.cluster && database != 0 {
            return Err(fault("names a database, and a cluster has only one"));
        }
        if config.ca_file.is_some() && !is_tls {
            return Err(RedisFault {
                key: "ca_file",
                problem: "needs a URL that begins with rediss://".to_owned(),
            });
        }
        let prefix = config
            .prefix
            .clone()
            .unwrap_or_else(|| if config.cluster { "{bull}" } else { "bull" }.to_owned());
        if prefix.is_empty() || prefix.contains(':') {
            return Err(RedisFault {
                key: "prefix",
                problem: "must not be empty, and must not contain a colon".to_owned(),
            });
        }
        let (is_cluster, ca_file) = (config.cluster, config.ca_file.clone());
        Ok(Self {
            place,
            prefix,
            is_cluster,
            first,
            others,
            is_tls,
            user,
            password,
            database,
            ca_file,
        })
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Those of several nodes that answer at once, or all when none does. A cluster's clients wait
    /// for each node that is named: a frozen one takes them longer than anybody waits.
    pub(crate) async fn answering(&self) -> Result<Vec<&Node>, QueueError> {
        if self.others.is_empty() {
            return Ok(vec![&self.first]);
        }
        let certificates = self.certificates().await?;
        let ask = |node| {
            let certificates = certificates.clone();
            async move { link::ping(self.info(node)?, certificates, NODE_ANSWER_MAX).await }
        };
        let answers = join_all(self.nodes().map(ask)).await;
        let answering =
            self.nodes().zip(answers).filter_map(|(node, answer)| answer.ok().map(|()| node));
        let answering: Vec<_> = answering.collect();
        Ok(if answering.is_empty() { self.nodes().collect() } else { answering })
    }

    /// A server as redis-rs connects to it.
    pub(crate) fn info(&self, node: &Node) -> RedisResult<ConnectionInfo> {
        let (host, port) = (node.host.clone(), node.port);
        let address = if self.is_tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if !self.user.is_empty() {
            settings = settings.set_username(&self.user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }

    /// Whom the server's certificate must come from; `None` without TLS.
    pub(crate) async fn certificates(&self) -> Result<Option<TlsCertificates>, QueueError> {
        Ok(self
            .roots()
            .await?
            .map(|roots| TlsCertificates { client_tls: None, root_cert: Some(roots) }))
    }

    /// What BullMQ's client connects to.
    pub(crate) async fn options(&self) -> Result<RedisConnectionOptions, QueueError> {
        let mut options = RedisConnectionOptions::new();
        options = if self.is_cluster {
            options.cluster_nodes(self.answering().await?.into_iter().map(|node| node.url.as_str()))
        } else {
            options.url(self.first.url.as_str())
        };
        if let Some(roots) = self.roots().await? {
            options = options.tls_certs(TlsCerts { root_cert: Some(roots), ..TlsCerts::default() });
        }
        Ok(options)
    }

    /// The authorities as PEM. BullMQ's client would trust a list that is compiled into it, and
    /// with it every other user of redis-rs in the program: so they are always named.
    async fn roots(&self) -> Result<Option<Vec<u8>>, QueueError> {
        if !self.is_tls {
            return Ok(None);
        }
        // Where somebody else has chosen one before, that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(file) = &self.ca_file {
            let read = tokio::fs::read(file).await;
            return read.map(Some).map_err(|error| {
                let problem = format!("cannot read {}: {error}: correct `ca_file`", file.display());
                QueueError::misconfigured(&self.place, problem)
            });
        }
        let mut pem = String::new();
        // One that cannot be read is one that is not trusted.
        for certificate in rustls_native_certs::load_native_certs().certs {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            pem.push_str(&STANDARD.encode(certificate.as_ref()));
            pem.push_str("\n-----END CERTIFICATE-----\n");
        }
        Ok(Some(pem.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Server, RedisFault> {
        Server::read(&RedisConfig { url: url.to_owned(), ..RedisConfig::default() })
    }

    #[test]
    fn a_url_is_taken_apart_and_its_secrets_are_not_shown() {
        let server = read("rediss://ann:p%40ss@redis.example:6380/3").unwrap();
        assert_eq!(server.place, "redis.example:6380");
        assert_eq!((server.user.as_str(), server.password.as_deref()), ("ann", Some("p@ss")));
        assert_eq!((server.database, server.prefix.as_str()), (3, "bull"));
        let config = RedisConfig { url: "redis://:secret@h".to_owned(), ..RedisConfig::default() };
        let redis = Redis::new(&config).unwrap();
        assert_eq!(format!("{redis:?}"), "Redis(\"h:6379\")");
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn nodes_of_a_cluster_share_all_but_host_and_port() {
        let server = Server::read(&RedisConfig {
            url: "redis://ann:p,w@a:1,b,[::1]:3".to_owned(),
            cluster: true,
            ..RedisConfig::default()
        })
        .unwrap();
        assert_eq!(server.place, "a:1, b:6379, [::1]:3");
        assert_eq!(server.password.as_deref(), Some("p,w"));
        let address = |node| server.info(node).unwrap().addr().to_string();
        let addresses: Vec<_> = server.nodes().map(address).collect();
        assert_eq!(addresses, ["a:1", "b:6379", "::1:3"]);
    }

    #[test]
    fn host_and_port_make_a_url() {
        for (host, place) in
            [("127.0.0.1", "127.0.0.1:7000"), ("::1", "[::1]:7000"), ("[::1]", "[::1]:7000")]
        {
            assert_eq!(read(&RedisConfig::url_of(host, 7000)).unwrap().place, place);
        }
    }

    #[test]
    fn faults_name_their_key_and_show_no_secret() {
        for bad in ["http://secret@h", "redis://", "secret", "", "redis://:secret@h/secret"] {
            let Err(fault) = read(bad) else { panic!("{bad} must be refused") };
            assert_eq!(fault.key, "url");
            assert!(!fault.to_string().contains("secret"), "{fault}");
        }
        assert!(read("redis://a,redis://b").err().unwrap().problem.contains("scheme"));
        assert!(read("redis://a,b").err().unwrap().problem.contains("`cluster`"));
        assert!(read("redis+sentinel://a/m").err().unwrap().problem.contains("Sentinels"));
        let with = |prefix: &str, cluster, url: &str, ca_file: Option<&str>| {
            let prefix = Some(prefix.to_owned());
            let ca_file = ca_file.map(PathBuf::from);
            Server::read(&RedisConfig { url: url.to_owned(), prefix, cluster, ca_file })
                .err()
                .map(|fault| fault.key)
        };
        assert_eq!(with("a:b", false, "redis://h", None), Some("prefix"));
        assert_eq!(with("", false, "redis://h", None), Some("prefix"));
        assert_eq!(with("{a}", true, "redis://h/1", None), Some("url"));
        assert_eq!(with("a", false, "redis://h", Some("ca.pem")), Some("ca_file"));
        assert_eq!(with("a", false, "rediss://h", Some("ca.pem")), None);
    }
}
