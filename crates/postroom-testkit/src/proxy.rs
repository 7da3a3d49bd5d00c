//! A TCP proxy on loopback that breaks connections on demand, for any protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with connections, those that are open included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    /// Passes everything on.
    Up,
    /// Resets every connection at once.
    Down,
    /// Keeps connections and passes nothing on, in either direction.
    Silent,
    /// Passes on what the client sends, and resets the connection instead of passing on the
    /// server's next answer: the work is done, and the client never learns of it.
    LosesAnswers,
    /// Resets the connection when the client sends more: the server gets part of it at most.
    CutsRequests,
}

/// A proxy in front of one server; it ends its connections when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    link: watch::Sender<Link>,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to `server` on a free port, that passes everything on.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (link, seen) = watch::channel(Link::Up);
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::AcqRel);
                tokio::spawn(carry(client, server, seen.clone()));
            }
        });
        Self { address, link, connections, accepting }
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens from now on.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// How many connections clients have made so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.link.send_replace(Link::Down);
    }
}

/// One connection, until either end or the link ends it.
async fn carry(client: TcpStream, server: SocketAddr, link: watch::Receiver<Link>) {
    reset_on_close(&client);
    let mut opened = link.clone();
    // A silent network does not even connect.
    if opened.wait_for(|link| *link != Link::Silent).await.is_err() || *link.borrow() == Link::Down
    {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    reset_on_close(&server);
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let mut down = link.clone();
    tokio::select! {
        () = pump(client_in, server_out, link.clone(), Link::CutsRequests) => {}
        () = pump(server_in, client_out, link, Link::LosesAnswers) => {}
        _ = down.wait_for(|link| *link == Link::Down) => {}
    }
}

/// Passes bytes on while the link is up; ends at the first bytes that meet `cut`.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
    cut: Link,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if link.wait_for(|link| *link != Link::Silent).await.is_err() {
            return;
        }
        if *link.borrow() == cut || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// What a crashed machine looks like: a reset instead of an orderly end.
fn reset_on_close(stream: &TcpStream) {
    // Without it the end would merely be a politer one.
    let _ = stream.set_zero_linger();
}
