//! NATS with JetStream for tests.

mod cluster;

pub use cluster::NatsCluster;

use crate::guarded::{Guarded, Kind, NotStarted, apart, on_free_port, shared};
use crate::programs::find_program;
use anyhow::Context as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const KIND: Kind = Kind { name: "NATS", prefix: "postroom-nats-", user: "nobody", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(180);

/// Where the NATS server is.
///
/// # Errors
/// When it is not installed.
pub fn find_nats() -> anyhow::Result<PathBuf> {
    find_program("nats-server", "nats-server")
}

/// A private NATS server that ends with the process that started it, or with the value.
#[derive(Debug)]
pub struct Nats {
    guarded: Arc<Guarded>,
    port: u16,
}

impl Nats {
    /// The server that all tests of this process share.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it is not installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Nats, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start("")).await
    }

    /// A server of its own, with these lines in its configuration.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn private(settings: &str) -> anyhow::Result<Self> {
        let settings = settings.to_owned();
        apart(move || Self::start(&settings)).await
    }

    fn start(settings: &str) -> anyhow::Result<Self> {
        let program = find_nats()?;
        let guarded = Guarded::new(KIND)?;
        let folder = guarded.folder().to_owned();
        let file = folder.join("nats.conf");
        fs::write(&file, settings).context("the settings of NATS")?;
        let port = on_free_port(
            |port| {
                let mut command = Command::new(&program);
                command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-js", "-sd"]);
                command.arg(folder.join("data")).arg("-c").arg(&file);
                guarded.start(&command, START_LIMIT, || greets(port))
            },
            || guarded.log_end().contains("address already in use"),
        )?;
        Ok(Self { guarded: Arc::new(guarded), port })
    }

    /// Kills the server with SIGKILL, and returns once it is gone.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let guarded = Arc::clone(&self.guarded);
        apart(move || guarded.stop()).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

/// A server says who it is to everyone who connects.
fn greets(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut line = String::new();
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO ")
}
