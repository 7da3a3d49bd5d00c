//! A private MariaDB server.

use super::binaries::{MariaDbPrograms, find_mariadb};
use crate::guarded::{Guarded, Kind, on_free_port};
use anyhow::Context as _;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const KIND: Kind =
    Kind { name: "MariaDB", prefix: "postroom-mariadb-", user: "mysql", crash: "KILL" };

/// What every private server gets: small, and with limits wide enough for many tests at once. A
/// commit survives a crash of the server, as tests of one expect, and not one of the machine.
const SETTINGS: &[(&str, &str)] = &[
    ("bind-address", "127.0.0.1"),
    ("innodb-flush-log-at-trx-commit", "2"),
    ("innodb-buffer-pool-size", "128M"),
    ("innodb-log-file-size", "64M"),
    ("max-connections", "300"),
    ("performance-schema", "OFF"),
];

#[derive(Debug)]
pub(super) struct Server {
    guarded: Guarded,
    programs: MariaDbPrograms,
    port: u16,
    settings: Vec<(String, String)>,
}

impl Server {
    /// Makes a data folder and starts a server on it. `first` are arguments of its first start.
    pub(super) fn create(
        settings: &[(String, String)],
        first: &[&str],
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let programs = find_mariadb()?;
        let guarded = Guarded::new(KIND)?;
        let mut install = Command::new(&programs.install);
        install
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(option("datadir", &data(guarded.folder())));
        guarded.prepare(&mut install)?;
        let mut server = Self { guarded, programs, port: 0, settings: settings.to_vec() };
        server.port = on_free_port(
            |port| server.start_on(port, first, limit),
            || server.guarded.log_end().contains("Address already in use"),
        )?;
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/mysql", self.port)
    }

    /// Starts the server and returns once it accepts connections.
    pub(super) fn start(&self, limit: Duration) -> anyhow::Result<()> {
        self.start_on(self.port, &[], limit)
    }

    /// Kills the server, and returns once it has ended.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.guarded.stop()
    }

    fn start_on(&self, port: u16, arguments: &[&str], limit: Duration) -> anyhow::Result<()> {
        let folder = self.guarded.folder();
        let pid_file = folder.join("pid");
        match fs::remove_file(&pid_file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("removing what the last server left");
            }
            Ok(()) | Err(_) => {}
        }
        let mut command = Command::new(&self.programs.server);
        command
            .arg("--no-defaults")
            .arg(option("datadir", &data(folder)))
            .arg(option("socket", &folder.join("socket")))
            .arg(option("pid-file", &pid_file))
            .arg(format!("--port={port}"));
        let defaults = SETTINGS.iter().copied();
        let extra = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.chain(extra) {
            command.arg(format!("--{name}={value}"));
        }
        command.args(arguments);
        // By the file that the server writes once it listens: a connection could reach someone
        // else's server.
        self.guarded.start(&command, limit, || pid_file.exists())
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}
