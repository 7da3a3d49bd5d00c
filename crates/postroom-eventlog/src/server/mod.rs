//! The log served over gRPC.
//!
//! Each service has a file: `streams` (with `read`, `subscribe`, `append` and `batch`), `features`,
//! `gossip` and `operations`. `accept`, `connection` and `tls` take connections in, `gate` stands
//! before all services, and `stopping` ends everything.

mod accept;
mod append;
mod assembly;
mod batch;
mod collected;
pub(crate) mod connection;
pub(crate) mod encode;
mod features;
mod gate;
mod gossip;
mod intake;
mod operations;
mod read;
pub(crate) mod reads;
mod request;
pub(crate) mod status;
mod stopping;
mod streams;
mod subscribe;
mod throttle;
mod tls;
mod users;
pub(crate) mod wire;

pub use tls::{Tls, TlsError};
pub use users::{Users, UsersError};

use crate::EventLog;
use crate::persistent;
use crate::proto::gossip::gossip_server::GossipServer;
use crate::proto::operations::operations_server::OperationsServer;
use crate::proto::persistent_subscriptions::persistent_subscriptions_server::PersistentSubscriptionsServer;
use crate::proto::server_features::server_features_server::ServerFeaturesServer;
use crate::proto::streams::streams_server::StreamsServer;
use accept::Acceptor;
use features::FeaturesService;
use gate::Gate;
use gossip::GossipService;
use operations::OperationsService;
use reads::Reads;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;
use stopping::{Phase, Stop};
use streams::StreamsService;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

/// The port of KurrentDB.
const PORT: u16 = 2113;
/// What a message may have beyond the largest append. A client may send that much at once of an
/// append that is then refused; more ends the call.
const MESSAGE_SLACK: usize = 4 << 20;
/// The largest message to a service that takes no events.
const SMALL_MESSAGE_MAX: usize = 256 << 10;
/// The most requests, subscriptions included, of one connection at the same time.
const STREAMS_MAX: u32 = 1_000;
/// The most reads at the same time, unless the settings say something else.
pub(crate) const READS_MAX: usize = 2_000;
const HEADERS_MAX: u32 = 16 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIME: Duration = Duration::from_secs(10);
/// How much a client may send before it is read.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How long connections may take to fail.
const LAST: Duration = Duration::from_secs(1);
/// How long persistent subscriptions may then take to write down how far they are.
const CLOSING: Duration = Duration::from_secs(2);

/// How a log is served.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The address to listen at. Port 0 is any that is free.
    pub listen: SocketAddr,
    /// With it, connections must be encrypted.
    pub tls: Option<Tls>,
    /// With it, requests must have a name and password.
    pub users: Option<Users>,
    /// The most connections at the same time: others are closed at once.
    pub connections_max: usize,
    /// The most reads that are open at the same time, over all connections: reads that have not
    /// ended, subscriptions, and consumers of persistent subscriptions. Another one is refused with
    /// RESOURCE_EXHAUSTED. A subscription that its client does not read holds about 300 KiB.
    pub reads_max: usize,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            tls: None,
            users: None,
            connections_max: 1_000,
            reads_max: READS_MAX,
        }
    }
}

/// Why a log cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The transport failed.
    #[error("serving connections")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves a log to the clients of KurrentDB.
pub struct Server {
    log: EventLog,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    users: Option<Users>,
    connections_max: usize,
    reads: Reads,
}

impl Server {
    /// Listens at the address of the settings; connections wait until [`Server::serve`].
    ///
    /// # Errors
    /// When the address is taken, or the certificate cannot be used.
    pub fn bind(log: EventLog, settings: ServerSettings) -> Result<Self, ServerError> {
        let tls = settings.tls.as_ref().map(tls::acceptor).transpose()?;
        let listen = |source| ServerError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let ServerSettings { users, connections_max, reads_max, .. } = settings;
        let reads = Reads::new(reads_max);
        Ok(Self { log, listener, address, tls, users, connections_max, reads })
    }

    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connection string for clients on this machine. Where there are users, clients have to add
    /// a name and password; where there is TLS, a certificate that they trust.
    #[must_use]
    pub fn connection_string(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // A client can connect to an address of the machine only.
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let tls = self.tls.is_some();
        format!("esdb://{address}?tls={tls}")
    }

    /// Serves until `stop` is there. Then no new connections are accepted, subscriptions end with a
    /// status by which clients connect again, and requests that are under way are finished. It
    /// returns within a few seconds, whatever clients do. The log stays open.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let groups = persistent::Service::with_reads(self.log.clone(), self.reads.clone());
        let served = self.serve_with(&groups, stop).await;
        if tokio::time::timeout(CLOSING, groups.close()).await.is_err() {
            tracing::warn!("persistent subscriptions did not stop in time: some events come again");
        }
        served
    }

    async fn serve_with(
        self,
        groups: &persistent::Service,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let listen = |source| ServerError::Listen { address: self.address, source };
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(listen)?;
        let phases = Stop::new();
        let stopping = phases.stopping();
        let acceptor = Acceptor::new(listener, self.tls, self.connections_max, stopping.clone());
        let gate = Gate::new(routes(&self.log, groups, self.reads), self.users, stopping.clone());
        let serving = tonic::transport::Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .http2_max_header_list_size(HEADERS_MAX)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PING_TIME))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_with_incoming_shutdown(
                gate,
                acceptor.connections(),
                stopping.reached(Phase::Stopping),
            );
        tokio::pin!(serving);
        tokio::select! {
            served = &mut serving => return Ok(served?),
            () = stop => {}
        }
        tokio::select! {
            served = &mut serving => return Ok(served?),
            () = phases.run() => {}
        }
        // All connections fail now. One that is stuck in a call to the system is not waited for.
        match tokio::time::timeout(LAST, serving).await {
            Ok(served) => Ok(served?),
            Err(_) => Ok(()),
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The largest message that may have events.
fn message_max(log: &EventLog) -> usize {
    log.settings().append_max.saturating_add(MESSAGE_SLACK)
}

/// The services.
fn routes(log: &EventLog, groups: &persistent::Service, reads: Reads) -> Routes {
    let streams = StreamsService::new(log.clone(), reads);
    let streams = StreamsServer::new(streams).max_decoding_message_size(message_max(log));
    let persistent = PersistentSubscriptionsServer::new(groups.clone());
    let features = ServerFeaturesServer::new(FeaturesService);
    let gossip = GossipServer::new(GossipService::new());
    let operations = OperationsServer::new(OperationsService::new(log.clone(), groups.clone()));
    Routes::new(streams)
        .add_service(persistent.max_decoding_message_size(SMALL_MESSAGE_MAX))
        .add_service(features.max_decoding_message_size(SMALL_MESSAGE_MAX))
        .add_service(gossip.max_decoding_message_size(SMALL_MESSAGE_MAX))
        .add_service(operations.max_decoding_message_size(SMALL_MESSAGE_MAX))
        .prepare()
}
