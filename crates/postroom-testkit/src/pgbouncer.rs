//! A PgBouncer in transaction mode before a PostgreSQL server.

use crate::guarded::{Guarded, Kind, apart, on_free_port};
use crate::programs::find_program;
use anyhow::Context as _;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const KIND: Kind =
    Kind { name: "PgBouncer", prefix: "postroom-pgbouncer-", user: "postgres", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where PgBouncer is: in the system's folders for programs, or on `PATH`.
///
/// # Errors
/// When it is not installed.
pub fn find_pgbouncer() -> anyhow::Result<PathBuf> {
    find_program("pgbouncer", "pgbouncer")
}

/// A private PgBouncer that pools by transaction and ends with the value.
#[derive(Debug)]
pub struct PgBouncer {
    _guarded: Guarded,
    port: u16,
}

impl PgBouncer {
    /// Starts one before the server that `server_url` names, with at most `sessions` of the server
    /// for each database and user.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn start(server_url: &str, sessions: u32) -> anyhow::Result<Self> {
        let server: tokio_postgres::Config = server_url.parse().context("the server's URL")?;
        let port = server.get_ports().first().copied().unwrap_or(5432);
        apart(move || Self::start_before(port, sessions)).await
    }

    fn start_before(server: u16, sessions: u32) -> anyhow::Result<Self> {
        let program = find_pgbouncer()?;
        let guarded = Guarded::new(KIND)?;
        let folder = guarded.folder().to_owned();
        fs::write(folder.join("users"), "\"postgres\" \"\"\n").context("PgBouncer's users")?;
        let port = on_free_port(
            |port| {
                fs::write(folder.join("pgbouncer.ini"), settings(&folder, server, port, sessions))
                    .context("PgBouncer's settings")?;
                let mut command = Command::new(&program);
                command.arg(folder.join("pgbouncer.ini"));
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                guarded.start(&command, START_LIMIT, listens)
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        Ok(Self { _guarded: guarded, port })
    }

    /// `server_url` with this pooler in the server's place.
    ///
    /// # Panics
    /// When it is no URL with a port.
    #[must_use]
    pub fn before(&self, server_url: &str) -> String {
        let server: tokio_postgres::Config = server_url.parse().expect("the server's URL");
        let port = server.get_ports().first().copied().unwrap_or(5432);
        server_url.replacen(&format!(":{port}/"), &format!(":{}/", self.port), 1)
    }
}

fn settings(folder: &Path, server: u16, port: u16, sessions: u32) -> String {
    let folder = folder.display();
    format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n\
         pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 200\n\
         server_idle_timeout = 1\n"
    )
}
