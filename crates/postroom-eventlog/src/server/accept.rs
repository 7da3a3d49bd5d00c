//! Takes connections in.

use super::connection::{Connection, Io};
use super::stopping::Stopping;
use super::throttle::Throttle;
use futures_util::{Stream, stream};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long to wait when the system gives no connection, for lack of file descriptors mostly.
const RETRY_TIME: Duration = Duration::from_millis(100);

/// Takes connections from a listener.
pub(crate) struct Acceptor {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
    connections_max: usize,
    stopping: Stopping,
    handshakes: JoinSet<Option<Connection>>,
    refusals: Throttle,
    failures: Throttle,
}

impl Acceptor {
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        connections_max: usize,
        stopping: Stopping,
    ) -> Self {
        Self {
            listener,
            tls,
            connections: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            connections_max,
            stopping,
            handshakes: JoinSet::new(),
            refusals: Throttle::default(),
            failures: Throttle::default(),
        }
    }

    /// The connections, as they come. The listener is closed when this is dropped.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |mut acceptor| async {
            let connection = acceptor.next().await;
            Some((Ok(connection), acceptor))
        })
    }

    async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Some(connection) = self.take(stream) {
                            return connection;
                        }
                    }
                    Err(error) => {
                        if let Some(since) = self.failures.report() {
                            tracing::warn!(%error, since, "cannot accept connections; trying again");
                        }
                        sleep(RETRY_TIME).await;
                    }
                },
                Some(handshake) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = handshake {
                        return connection;
                    }
                }
            }
        }
    }

    /// Takes a connection, unless there are too many or it has to be made secure first.
    fn take(&mut self, stream: TcpStream) -> Option<Connection> {
        let Ok(permit) = self.connections.clone().try_acquire_owned() else {
            if let Some(since) = self.refusals.report() {
                let max = self.connections_max;
                tracing::warn!(max, since, "too many connections: closing new ones at once");
            }
            return None;
        };
        // Without it, each small answer waits for the one before to be acknowledged.
        stream.set_nodelay(true).ok()?;
        let local = stream.local_addr().ok()?;
        match self.tls.clone() {
            None => Some(Connection::new(Io::Plain(stream), local, &self.stopping, permit)),
            Some(tls) => {
                self.handshakes.spawn(secure(tls, stream, local, self.stopping.clone(), permit));
                None
            }
        }
    }
}

async fn secure(
    tls: TlsAcceptor,
    stream: TcpStream,
    local: SocketAddr,
    stopping: Stopping,
    permit: OwnedSemaphorePermit,
) -> Option<Connection> {
    match timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            Some(Connection::new(Io::Tls(Box::new(stream)), local, &stopping, permit))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("a TLS handshake took too long");
            None
        }
    }
}
