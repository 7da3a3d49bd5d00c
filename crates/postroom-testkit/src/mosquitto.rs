//! Mosquitto, an MQTT broker, for tests.

use crate::guarded::{Guarded, Kind, NotStarted, apart, on_free_port, shared};
use crate::programs::find_program;
use anyhow::Context as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const KIND: Kind =
    Kind { name: "Mosquitto", prefix: "postroom-mosquitto-", user: "nobody", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where Mosquitto is.
///
/// # Errors
/// When it is not installed.
pub fn find_mosquitto() -> anyhow::Result<PathBuf> {
    find_program("mosquitto", "mosquitto")
}

/// A private Mosquitto that ends with the process that started it, or with the value. Packets may
/// have 1,000,000 bytes.
#[derive(Debug)]
pub struct Mosquitto {
    _guarded: Guarded,
    port: u16,
}

impl Mosquitto {
    /// The broker that all tests of this process share.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it is not installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Mosquitto, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start("allow_anonymous true\n")).await
    }

    /// A broker of its own, with these lines in its configuration.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn private(settings: &str) -> anyhow::Result<Self> {
        let settings = settings.to_owned();
        apart(move || Self::start(&settings)).await
    }

    fn start(settings: &str) -> anyhow::Result<Self> {
        let program = find_mosquitto()?;
        let guarded = Guarded::new(KIND)?;
        let file = guarded.folder().join("mosquitto.conf");
        let port = on_free_port(
            |port| {
                let all = format!(
                    "listener {port} 127.0.0.1\nmax_packet_size 1000000\n\
                     max_queued_messages 100000\n{settings}"
                );
                fs::write(&file, all).context("the settings of Mosquitto")?;
                let mut command = Command::new(&program);
                command.arg("-c").arg(&file);
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                guarded.start(&command, START_LIMIT, listens)
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        Ok(Self { _guarded: guarded, port })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}
