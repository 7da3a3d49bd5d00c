//! Connections that can be reset from inside a request's handler.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The switch that resets one connection; handlers get it as their `ConnectInfo`.
#[derive(Clone, Debug, Default)]
pub(super) struct Reset(Arc<AtomicBool>);

impl Reset {
    /// From now on nothing is written, and the connection ends with a TCP reset.
    pub(super) fn reset(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_due(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Accepts connections with a [`Reset`] each.
pub(super) struct ResettableListener(pub(super) TcpListener);

impl Listener for ResettableListener {
    type Io = Connection;
    type Addr = Reset;

    async fn accept(&mut self) -> (Connection, Reset) {
        let (stream, _) = Listener::accept(&mut self.0).await;
        let reset = Reset::default();
        (Connection { stream, reset: reset.clone() }, reset)
    }

    fn local_addr(&self) -> io::Result<Reset> {
        Ok(Reset::default())
    }
}

impl Connected<IncomingStream<'_, ResettableListener>> for Reset {
    fn connect_info(stream: IncomingStream<'_, ResettableListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A TCP stream that breaks once its [`Reset`] is due.
pub(super) struct Connection {
    stream: TcpStream,
    reset: Reset,
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if !self.reset.is_due() {
            return Ok(());
        }
        // With no time to linger, closing sends RST instead of FIN.
        self.stream.set_zero_linger()?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
