//! PostgreSQL for tests: one server per process, a fresh database per test.

mod binaries;
mod database;
mod dump;
mod frozen;
mod server;
mod standby;

pub use binaries::find_postgres;
pub use database::TestDatabase;
pub use dump::Dump;
pub use frozen::Frozen;
pub use standby::Standby;

use crate::guarded::{NotStarted, apart, shared};
use anyhow::Context as _;
use server::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a server may take to start or stop, before a test gives up on it.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running PostgreSQL server: a private one, or the one that `DATABASE_URL` names.
///
/// A private server listens on a free port of the loopback interface, keeps its data in a folder
/// of its own below the system's temporary folder, and ends with the process that started it,
/// however that process ends; its folder goes with it.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    /// `None` when `DATABASE_URL` names the server: it is not ours to stop.
    server: Option<Arc<Server>>,
}

impl Postgres {
    /// The server that all tests of this process share: the one that `DATABASE_URL` names, or a
    /// private one that is started at the first call and ends with the process.
    ///
    /// # Panics
    /// When there is none and none can be started; the message says what to install.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        if let Some(server) = SHARED.get() {
            return server;
        }
        // `get_or_init` blocks while another test starts the server: not on an async thread.
        let start = || {
            SHARED.get_or_init(|| match std::env::var("DATABASE_URL") {
                Ok(url) => Self { url, server: None },
                Err(_) => Self::start_private(&std::env::temp_dir(), None, &[])
                    .unwrap_or_else(|error| panic!("{error:#}")),
            })
        };
        tokio::task::spawn_blocking(start).await.expect("the shared PostgreSQL cannot be started")
    }

    /// A server of its own, to stop and start at will; it ends when the value is dropped.
    /// `settings` are added to those that every private server gets, and win over them.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not start.
    pub async fn private(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::private_in(&std::env::temp_dir(), settings).await
    }

    /// The same, with its data below `parent`, e.g. on a file system that can run full.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not start.
    pub async fn private_in(parent: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let parent = parent.to_owned();
        apart(move || Self::start_private(&parent, None, &settings)).await
    }

    /// A server of PostgreSQL 18 that all tests of this process share, from Maven Central.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it cannot be had.
    pub async fn shared_18() -> &'static Self {
        static SHARED: OnceLock<Result<Postgres, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start_private(&std::env::temp_dir(), Some(18), &[])).await
    }

    /// A server of its own of another release than the installed one: 16, 17 or 18.
    ///
    /// # Errors
    /// When it cannot be had, or does not start.
    pub async fn release(major: u32) -> anyhow::Result<Self> {
        apart(move || Self::start_private(&std::env::temp_dir(), Some(major), &[])).await
    }

    fn start_private(
        parent: &Path,
        release: Option<u32>,
        settings: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let server = Server::create(parent, release, settings, START_LIMIT)?;
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
    pub async fn database(&self) -> TestDatabase {
        self.try_database()
            .await
            .unwrap_or_else(|error| panic!("a database for the test: {error:#}"))
    }

    /// The same for those who go on without one.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn try_database(&self) -> anyhow::Result<TestDatabase> {
        TestDatabase::create(&self.url).await
    }

    /// Stops the server at once, as a crash would: nothing is flushed, every connection is cut.
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

    /// Freezes the server: it accepts connections, acknowledges every packet, and answers nothing
    /// until the value is dropped.
    ///
    /// # Errors
    /// When the server is not ours, or cannot be signalled.
    pub async fn freeze(&self) -> anyhow::Result<Frozen> {
        let server = self.own_server()?;
        apart(move || Frozen::freeze(server.process()?)).await
    }

    fn own_server(&self) -> anyhow::Result<Arc<Server>> {
        self.server
            .clone()
            .context("DATABASE_URL names this server: use Postgres::private to stop and start one")
    }
}
