//! One accepted connection.

use super::stopping::{Phase, Stopping};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// The bytes with which every HTTP/2 connection begins.
const PREFACE: usize = 24;
/// How long a client may take to send them. Later on, pings tell whether it is still there.
const PREFACE_TIME: Duration = Duration::from_secs(10);

/// The bytes of a connection, encrypted or not.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What a request can learn of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The address at which the client reached this server.
    pub(crate) local: SocketAddr,
    /// The client's address; none where it has gone already.
    pub(crate) remote: Option<SocketAddr>,
}

/// A connection. It counts as one of those that the server allows until it is dropped; reading
/// from it fails once the server is done with waiting for its clients.
pub(crate) struct Connection {
    io: Io,
    peer: Peer,
    closing: Pin<Box<dyn Future<Output = ()> + Send>>,
    preface: Option<Preface>,
    _permit: OwnedSemaphorePermit,
}

struct Preface {
    missing: usize,
    time: Pin<Box<Sleep>>,
}

impl Connection {
    pub(crate) fn new(
        io: Io,
        local: SocketAddr,
        stopping: &Stopping,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let remote = match &io {
            Io::Plain(stream) => stream.peer_addr(),
            Io::Tls(stream) => stream.get_ref().0.peer_addr(),
        };
        Self {
            io,
            peer: Peer { local, remote: remote.ok() },
            closing: Box::pin(stopping.reached(Phase::Close)),
            preface: Some(Preface { missing: PREFACE, time: Box::pin(sleep(PREFACE_TIME)) }),
            _permit: permit,
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buf.filled().len();
        let read = match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Io::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        };
        if let Some(preface) = &mut this.preface {
            preface.missing = preface.missing.saturating_sub(buf.filled().len() - before);
            if preface.missing == 0 {
                this.preface = None;
            } else if preface.time.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Io::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Io::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Io::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
