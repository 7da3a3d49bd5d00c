//! Apache Kafka for tests: its own broker, from Maven Central.

#[cfg(feature = "kafka")]
mod cluster;
mod kcat;
mod programs;
mod server;
#[cfg(feature = "kafka")]
mod topic;

#[cfg(feature = "kafka")]
pub use cluster::KafkaCluster;
pub use kcat::KafkaRecord;
pub use programs::{KafkaPrograms, find_kafka};

use crate::Proxy;
use crate::guarded::{apart, shared_or_reason};
use anyhow::Context as _;
use server::{Door, Server};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names a running broker, which is used instead of a private one.
const VARIABLE: &str = "KAFKA_BROKERS";

/// A broker: a private one that ends with the process that started it, or with the value; or one
/// that `KAFKA_BROKERS` names.
///
/// A private one lets everybody do everything at [`address`](Self::address). At
/// [`secure_address`](Self::secure_address) it asks for a login over TLS: `relay` with the
/// password `hunter2` may do everything, `stranger` with the same may do nothing.
#[derive(Debug)]
pub struct Kafka {
    brokers: String,
    /// `None` when `KAFKA_BROKERS` names it.
    server: Option<Server>,
    doors: Mutex<Vec<Door>>,
}

impl Kafka {
    /// The broker that all tests of this process share.
    ///
    /// # Errors
    /// Why there is none, for a skip.
    ///
    /// # Panics
    /// When starting it does.
    pub async fn shared() -> Result<&'static Self, &'static str> {
        static SHARED: OnceLock<Result<Kafka, String>> = OnceLock::new();
        shared_or_reason(&SHARED, || {
            let given = std::env::var(VARIABLE).ok().filter(|brokers| !brokers.is_empty());
            given.map_or_else(Self::start, |brokers| Ok(Self::given(brokers)))
        })
        .await
    }

    /// A broker of its own.
    ///
    /// # Errors
    /// When it cannot be had, or does not start.
    pub async fn private() -> anyhow::Result<Self> {
        apart(Self::start).await
    }

    fn given(brokers: String) -> Self {
        Self { brokers, server: None, doors: Mutex::default() }
    }

    fn start() -> anyhow::Result<Self> {
        let (server, doors) = Server::start()?;
        let brokers = server.address().to_string();
        Ok(Self { brokers, server: Some(server), doors: Mutex::new(doors) })
    }

    /// What clients are told to connect to.
    #[must_use]
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Where the first broker listens.
    ///
    /// # Panics
    /// When `KAFKA_BROKERS` holds no address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let first = self.brokers.split(',').next().unwrap_or_default();
        let mut addresses = first.to_socket_addrs().unwrap_or_else(|error| {
            panic!("{VARIABLE} must name a host and a port first: {error}")
        });
        addresses.next().expect("a host has an address")
    }

    /// A proxy to the broker. Clients that come through it stay with it, since Kafka tells them
    /// its address as its own. There are a dozen.
    ///
    /// # Errors
    /// Why there is none, for a skip.
    pub fn proxy(&self) -> Result<Proxy, &'static str> {
        if self.server.is_none() {
            return Err("the broker that KAFKA_BROKERS names leads clients past any proxy");
        }
        let door = self.doors.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Door { outside, inside } = door.ok_or("all proxies to Kafka are taken")?;
        Ok(Proxy::at(outside, inside))
    }

    /// Where it asks for a login over TLS, and the certificate to trust.
    ///
    /// # Errors
    /// Why there is none, for a skip.
    pub fn secure_address(&self) -> Result<(SocketAddr, PathBuf), &'static str> {
        let none = "only a private broker has users whose passwords are known";
        let server = self.server.as_ref().ok_or(none)?;
        Ok((server.secure_address(), server.authority().file()))
    }

    /// Kills a private broker with SIGKILL.
    ///
    /// # Errors
    /// When it is not private, or does not end.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.server.as_ref().context("this broker is not ours to kill")?.kill()
    }

    /// Starts a private broker again that was killed, and returns once it is ready.
    ///
    /// # Errors
    /// When it is not private, or does not start.
    pub fn restart(&self) -> anyhow::Result<()> {
        self.server.as_ref().context("this broker is not ours to start")?.run()
    }

    /// Everything in a topic, read by `kcat`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, topic: &str) -> anyhow::Result<Vec<KafkaRecord>> {
        let (brokers, topic) = (self.brokers.clone(), topic.to_owned());
        apart(move || kcat::read(&brokers, &topic)).await
    }
}
