//! MariaDB for tests: one server per process, a fresh database per test.

mod binaries;
mod database;
mod galera;
mod server;

pub use binaries::{MariaDbPrograms, find_mariadb};
pub use database::MariaDatabase;
pub use galera::{Galera, find_galera};

use crate::guarded::apart;
use anyhow::Context as _;
use server::Server;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a server may take to start or stop, before a test gives up on it.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running MariaDB server: a private one, or the one that `MARIADB_URL` names.
///
/// A private server listens on a free port of the loopback interface, keeps its data in a folder
/// of its own below the system's temporary folder, and ends with the process that started it,
/// however that process ends; its folder goes with it.
#[derive(Debug)]
pub struct MariaDb {
    url: String,
    /// `None` when `MARIADB_URL` names the server: it is not ours to stop.
    server: Option<Arc<Server>>,
}

impl MariaDb {
    /// The server that all tests of this process share: the one that `MARIADB_URL` names, or a
    /// private one that is started at the first call and ends with the process.
    ///
    /// # Panics
    /// When there is none and none can be started; the message says what to install.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        if let Some(server) = SHARED.get() {
            return server;
        }
        // `get_or_init` blocks while another test starts the server: not on an async thread.
        let start = || {
            SHARED.get_or_init(|| match std::env::var("MARIADB_URL") {
                Ok(url) => Self { url, server: None },
                Err(_) => Self::start_private(&[]).unwrap_or_else(|error| panic!("{error:#}")),
            })
        };
        tokio::task::spawn_blocking(start).await.expect("the shared MariaDB cannot be started")
    }

    /// A server of its own, to stop and start at will; it ends when the value is dropped.
    /// `settings` are added to those that every private server gets, and win over them.
    ///
    /// # Errors
    /// When MariaDB is not installed, or does not start.
    pub async fn private(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        apart(move || Self::start_private(&settings)).await
    }

    fn start_private(settings: &[(String, String)]) -> anyhow::Result<Self> {
        let server = Server::create(settings, &[], START_LIMIT)?;
        Ok(Self { url: server.url(), server: Some(Arc::new(server)) })
    }

    /// The URL of the server's own maintenance database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where a private server listens.
    ///
    /// # Errors
    /// When the server is not ours.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.own_server()?.address())
    }

    /// Creates an empty database with a random name, which is dropped with the value.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn database(&self) -> MariaDatabase {
        self.try_database()
            .await
            .unwrap_or_else(|error| panic!("a database for the test: {error:#}"))
    }

    /// The same for those who go on without one.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn try_database(&self) -> anyhow::Result<MariaDatabase> {
        MariaDatabase::create(&self.url).await
    }

    /// Kills the server: nothing is flushed, every connection is cut.
    ///
    /// # Errors
    /// When the server is not ours, or does not end.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let server = self.own_server()?;
        apart(move || server.stop()).await
    }

    /// Starts a stopped server again, on the same port and with the same data.
    ///
    /// # Errors
    /// When the server is not ours, or does not start.
    pub async fn start(&self) -> anyhow::Result<()> {
        let server = self.own_server()?;
        apart(move || server.start(START_LIMIT)).await
    }

    fn own_server(&self) -> anyhow::Result<Arc<Server>> {
        self.server
            .clone()
            .context("MARIADB_URL names this server: use MariaDb::private to stop and start one")
    }
}
