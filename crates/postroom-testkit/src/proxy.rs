//! A TCP proxy on loopback that breaks connections on demand.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// What the proxy does, named after what physically happens.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Passage {
    /// Everything passes.
    #[default]
    Open,
    /// New connections are reset at once; those that are open stay.
    Reset,
    /// A request that holds these bytes passes; the answer that holds them is swallowed, and the
    /// connection is reset: the work is done, and the client never learns of it.
    SwallowAnswer(&'static [u8]),
}

/// A proxy to one server, on a port of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    passage: Mutex<Passage>,
    connections: AtomicUsize,
}

impl State {
    fn passage(&self) -> Passage {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Proxy {
    /// Starts a proxy to `upstream`.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let passage = Mutex::default();
        let state = Arc::new(State { upstream, passage, connections: AtomicUsize::new(0) });
        let (stop, stopped) = oneshot::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for the proxy");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, state, stop: Some(stop), thread: Some(thread) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does this from now on.
    pub fn set(&self, passage: Passage) {
        *self.state.passage.lock().unwrap_or_else(PoisonError::into_inner) = passage;
    }

    /// How many connections were asked for so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Acquire)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::AcqRel);
        if state.passage() == Passage::Reset {
            reset(&client);
            continue;
        }
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // However it ends, both sides end with it.
            let _ = pass(client, &state).await;
        });
    }
}

async fn pass(mut client: TcpStream, state: &State) -> io::Result<()> {
    let mut server = TcpStream::connect(state.upstream).await?;
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    // What is swallowed so far, once a request has asked for it.
    let mut swallowing: Option<(&'static [u8], Vec<u8>)> = None;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return server.shutdown().await;
                }
                if let Passage::SwallowAnswer(word) = state.passage()
                    && holds(bytes, word)
                    && swallowing.is_none()
                {
                    swallowing = Some((word, Vec::new()));
                }
                server.write_all(bytes).await?;
            }
            read = server.read(&mut answered) => {
                let bytes = &answered[..read?];
                if bytes.is_empty() {
                    return client.shutdown().await;
                }
                let Some((word, swallowed)) = &mut swallowing else {
                    client.write_all(bytes).await?;
                    continue;
                };
                swallowed.extend_from_slice(bytes);
                if holds(swallowed, word) {
                    reset(&client);
                    return Ok(());
                }
            }
        }
    }
}

fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// With no time to linger, closing sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
