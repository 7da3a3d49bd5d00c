//! A TCP proxy on loopback that breaks connections on demand.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// What the proxy does, named after what physically happens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Passage {
    /// Everything passes.
    #[default]
    Open,
    /// New connections are reset at once; those that are open stay.
    Reset,
    /// All connections are reset at once.
    Down,
    /// Connections stay, and nothing passes in either direction.
    Silent,
    /// This many bytes of requests and of answers pass, and the rest hangs: the first messages of
    /// a batch are done, or the client knows of the first ones.
    HangAfter {
        /// Bytes of requests.
        asked: usize,
        /// Bytes of answers.
        answered: usize,
    },
    /// A request that holds these bytes passes; the answer that holds them is swallowed, and the
    /// connection is reset: the work is done, and the client never learns of it.
    SwallowAnswer(&'static [u8]),
    /// Requests pass; at the next answer, whatever it is, the connection is reset.
    LoseAnswers,
    /// At the next request the connection is reset, and the server does not get it.
    CutRequests,
}

/// A proxy to a server, on a port of its own; it ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    upstream: Mutex<SocketAddr>,
    passage: watch::Sender<Passage>,
    severed: watch::Sender<Severed>,
    connections: AtomicUsize,
    let_through: AtomicUsize,
}

/// What has become of the oldest connections, by the number of the last one concerned.
#[derive(Clone, Copy, Debug, Default)]
struct Severed {
    /// Half open from now on.
    half_open: usize,
    /// Of those, reset.
    reset: usize,
    /// Reset when the proxy was [down](Passage::Down), though it may be open again before anybody has
    /// noticed.
    down: usize,
}

impl State {
    fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how many bytes pass.
    fn count(&self, of_request: usize, of_answer: usize) {
        self.passage.send_if_modified(|passage| {
            let Passage::HangAfter { asked, answered } = passage else { return false };
            *asked = asked.saturating_sub(of_request);
            *answered = answered.saturating_sub(of_answer);
            true
        });
    }
}

impl Proxy {
    /// Starts a proxy to `upstream`.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        Self::at(std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port"), upstream)
    }

    /// Starts a proxy to `upstream` at a port that is bound already.
    ///
    /// # Panics
    /// When the socket is of no use.
    #[must_use]
    pub fn at(listener: std::net::TcpListener, upstream: SocketAddr) -> Self {
        let address = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let passage = watch::Sender::new(Passage::Open);
        let state = Arc::new(State {
            upstream: Mutex::new(upstream),
            passage,
            severed: watch::Sender::new(Severed::default()),
            connections: AtomicUsize::new(0),
            let_through: AtomicUsize::new(0),
        });
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
        self.state.passage.send_replace(passage);
        if passage == Passage::Down {
            let number = self.connections();
            self.state.severed.send_modify(|severed| severed.down = number);
        }
    }

    /// Leads new connections to another server; those that are open stay where they are.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.state.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
    }

    /// Makes the connections that are open now half open: they take every byte, pass none on, and
    /// answer nothing, and the server does not learn when the client gives up. They stay so until
    /// [`reset_half_open`](Self::reset_half_open), or as long as the proxy. New connections are as
    /// [`set`](Self::set) says.
    pub fn half_open(&self) {
        let number = self.connections();
        self.state.severed.send_modify(|severed| severed.half_open = number);
    }

    /// Resets the connections that are half open.
    pub fn reset_half_open(&self) {
        self.state.severed.send_modify(|severed| severed.reset = severed.half_open);
    }

    /// How many connections were asked for so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Acquire)
    }

    /// How many of them were not reset at once.
    #[must_use]
    pub fn let_through(&self) -> usize {
        self.state.let_through.load(Ordering::Acquire)
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
        let number = state.connections.fetch_add(1, Ordering::AcqRel) + 1;
        if matches!(*state.passage.borrow(), Passage::Reset | Passage::Down) {
            reset(&client);
            continue;
        }
        state.let_through.fetch_add(1, Ordering::AcqRel);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // However it ends, both sides end with it.
            let _ = serve(number, client, &state).await;
        });
    }
}

async fn serve(number: usize, mut client: TcpStream, state: &State) -> io::Result<()> {
    let mut server = TcpStream::connect(state.upstream()).await?;
    let mut severed = state.severed.subscribe();
    tokio::select! {
        biased;
        _ = severed.wait_for(|severed| number <= severed.half_open.max(severed.down)) => {}
        ended = pass(&mut client, &mut server, state) => return ended,
    }
    let swallow = async {
        let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
        // The client has given up, and nobody tells the server.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = severed.wait_for(|severed| number <= severed.reset.max(severed.down)) => {}
        () = swallow => {}
    }
    end(&client, &server)
}

async fn pass(client: &mut TcpStream, server: &mut TcpStream, state: &State) -> io::Result<()> {
    let mut passage = state.passage.subscribe();
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    // What is swallowed so far, once a request has asked for it.
    let mut swallowing: Option<(&'static [u8], Vec<u8>)> = None;
    loop {
        let now = *passage.borrow_and_update();
        if now == Passage::Down {
            return end(client, server);
        }
        let (to_server, to_client) = match now {
            Passage::Silent => (0, 0),
            Passage::HangAfter { asked, answered } => (asked, answered),
            _ => (usize::MAX, usize::MAX),
        };
        let (to_server, to_client) = (to_server.min(asked.len()), to_client.min(answered.len()));
        tokio::select! {
            // What was set before a request was sent holds for that request.
            biased;
            changed = passage.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
            }
            read = client.read(&mut asked[..to_server]), if to_server > 0 => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return server.shutdown().await;
                }
                match *passage.borrow() {
                    Passage::CutRequests => return end(client, server),
                    Passage::SwallowAnswer(word) if holds(bytes, word) => {
                        swallowing.get_or_insert((word, Vec::new()));
                    }
                    _ => {}
                }
                state.count(bytes.len(), 0);
                server.write_all(bytes).await?;
            }
            read = server.read(&mut answered[..to_client]), if to_client > 0 => {
                let bytes = &answered[..read?];
                if bytes.is_empty() {
                    return client.shutdown().await;
                }
                if now == Passage::LoseAnswers {
                    return end(client, server);
                }
                state.count(0, bytes.len());
                let Some((word, swallowed)) = &mut swallowing else {
                    client.write_all(bytes).await?;
                    continue;
                };
                swallowed.extend_from_slice(bytes);
                if holds(swallowed, word) {
                    return end(client, server);
                }
            }
        }
    }
}

/// Ends both connections as a crash does.
fn end(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    reset(client);
    reset(server);
    Ok(())
}

fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// With no time to linger, closing sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
