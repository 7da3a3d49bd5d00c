//! A private PostgreSQL server.

use super::binaries::{find_postgres, unpack_release};
use crate::guarded::{Guarded, Kind, on_free_port};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// SIGQUIT is its immediate shutdown, which recovers at the next start like a crash.
const KIND: Kind =
    Kind { name: "PostgreSQL", prefix: "postroom-postgres-", user: "postgres", crash: "QUIT" };

/// What every private server gets: durability that a test does not need is off, and limits are
/// wide enough for many tests at once.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("wal_level", "logical"),
    ("max_connections", "200"),
    ("timezone", "UTC"),
];

#[derive(Debug)]
pub(super) struct Server {
    guarded: Guarded,
    binaries: PathBuf,
    port: u16,
    settings: Vec<(String, String)>,
}

impl Server {
    /// Makes a data folder below `parent` and starts a server on it: the installed one, or one of
    /// another release, which is unpacked there first.
    pub(super) fn create(
        parent: &Path,
        release: Option<u32>,
        settings: &[(String, String)],
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let guarded = Guarded::new_in(parent, KIND)?;
        let binaries = match release {
            None => find_postgres()?,
            Some(major) => unpack_release(major, &guarded.folder().join("release"))?,
        };
        let mut initdb = Command::new(binaries.join("initdb"));
        initdb
            .args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D"])
            .arg(data(guarded.folder()));
        guarded.prepare(&mut initdb)?;
        let server = Self { guarded, binaries, port: 0, settings: settings.to_vec() };
        server.on_a_port(limit)
    }

    /// Starts a server that has no port yet.
    fn on_a_port(mut self, limit: Duration) -> anyhow::Result<Self> {
        self.port = on_free_port(
            |port| self.start_on(port, limit),
            || self.guarded.log_end().contains("Address already in use"),
        )?;
        Ok(self)
    }

    /// A copy of it in a folder of its own, which follows it at `through` and answers readers.
    pub(super) fn standby(&self, through: SocketAddr, limit: Duration) -> anyhow::Result<Self> {
        let guarded = Guarded::new(KIND)?;
        let mut copy = Command::new(self.binaries.join("pg_basebackup"));
        copy.args(["-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-h"])
            .arg(through.ip().to_string())
            .arg("-p")
            .arg(through.port().to_string())
            .arg("-D")
            .arg(data(guarded.folder()));
        guarded.prepare(&mut copy)?;
        let mut settings = self.settings.clone();
        settings.push(("wal_retrieve_retry_interval".to_owned(), "100ms".to_owned()));
        let server = Self { guarded, binaries: self.binaries.clone(), port: 0, settings };
        server.on_a_port(limit)
    }

    /// Makes a standby a primary, and returns once it is.
    pub(super) fn promote(&self) -> anyhow::Result<()> {
        let mut promote = Command::new(self.binaries.join("pg_ctl"));
        promote.args(["promote", "-w", "-D"]).arg(data(self.guarded.folder()));
        self.guarded.prepare(&mut promote)
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts the server and returns once it accepts connections.
    pub(super) fn start(&self, limit: Duration) -> anyhow::Result<()> {
        self.start_on(self.port, limit)
    }

    /// Stops the server as a crash would, and returns once it has ended.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.guarded.stop()
    }

    /// The server's main process, by its own status file.
    pub(super) fn process(&self) -> anyhow::Result<i32> {
        let status = fs::read_to_string(data(self.guarded.folder()).join("postmaster.pid"))?;
        Ok(status.lines().next().unwrap_or_default().trim().parse()?)
    }

    fn start_on(&self, port: u16, limit: Duration) -> anyhow::Result<()> {
        let mut command = Command::new(self.binaries.join("postgres"));
        command.arg("-D").arg(data(self.guarded.folder())).arg("-p").arg(port.to_string());
        let defaults = SETTINGS.iter().copied();
        let extra = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.chain(extra) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.guarded.start(&command, limit, || self.accepts_connections())
    }

    /// By the server's own status file: a connection could reach someone else's server.
    fn accepts_connections(&self) -> bool {
        let status = fs::read_to_string(data(self.guarded.folder()).join("postmaster.pid"));
        status.is_ok_and(|text| text.lines().nth(7).is_some_and(|line| line.trim() == "ready"))
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}
