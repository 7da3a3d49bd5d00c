//! Redis for tests.

use crate::CertificateFiles;
use crate::eventually::within;
use crate::guarded::{Guarded, Kind, NotStarted, apart, on_free_port, shared};
use crate::programs::find_program;
use anyhow::{Context as _, ensure};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) const KIND: Kind =
    Kind { name: "Redis", prefix: "postroom-redis-", user: "nobody", crash: "KILL" };
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// Where the Redis server is.
///
/// # Errors
/// When it is not installed.
pub fn find_redis() -> anyhow::Result<PathBuf> {
    find_program("redis-server", "redis-server")
}

/// A private Redis that ends with the process that started it, or with the value.
#[derive(Debug)]
pub struct Redis {
    guarded: Arc<Guarded>,
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
}

impl Redis {
    /// The server that all tests of this process share.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it is not installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Redis, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start(&[])).await
    }

    /// A server of its own, with these arguments besides.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn private(arguments: &[&str]) -> anyhow::Result<Self> {
        let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        apart(move || Self::start(&arguments)).await
    }

    /// A server of its own that speaks TLS as well, on the port that is returned with it.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn with_tls(files: &CertificateFiles) -> anyhow::Result<(Self, u16)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
        let port = listener.local_addr().context("looking for a free port")?.port();
        drop(listener);
        let certificate = files.certificate().display().to_string();
        let key = files.key().display().to_string();
        let server = Self::private(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            // It wants one, and asks no client for a certificate.
            "--tls-ca-cert-file",
            &certificate,
            "--tls-auth-clients",
            "no",
        ])
        .await?;
        Ok((server, port))
    }

    fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let program = find_redis()?;
        let guarded = Guarded::new(KIND)?;
        let port = on_free_port(
            |port| {
                let command = command(&program, port, guarded.folder(), arguments);
                guarded.start(&command, START_LIMIT, || answers(port))
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        let (guarded, arguments) = (Arc::new(guarded), arguments.to_vec());
        Ok(Self { guarded, program, arguments, port })
    }

    /// Kills the server, and returns once it is gone. It keeps nothing on disk.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn crash(&self) -> anyhow::Result<()> {
        let guarded = Arc::clone(&self.guarded);
        apart(move || guarded.stop()).await
    }

    /// Starts it again after a crash, on the same port and empty.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_again(&self) -> anyhow::Result<()> {
        let (guarded, port) = (Arc::clone(&self.guarded), self.port);
        let command = command(&self.program, port, guarded.folder(), &self.arguments);
        apart(move || guarded.start(&command, START_LIMIT, || answers(port))).await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Runs a command through Redis's own client, and returns the answer as JSON.
    ///
    /// # Errors
    /// When the client is not installed, or the server answers with an error.
    pub async fn cli(&self, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
        let mut command = Command::new("redis-cli");
        command.args(["-e", "--json", "-p", &self.port.to_string()]).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .context("redis-cli panicked")?
            .context("running redis-cli")?;
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "redis-cli: {said}{wrong}");
        // Reports such as INFO are text all the same.
        Ok(serde_json::from_str(&said).unwrap_or_else(|_| said.as_ref().into()))
    }

    /// Waits until its replica has everything that this server has. Before that, nobody stands in
    /// for it. `login` are arguments of Redis's own client.
    ///
    /// # Errors
    /// When there is no such replica in time.
    pub async fn wait_replicated(&self, login: &[&str]) -> anyhow::Result<()> {
        let is_replicated = async || {
            let info = self.cli(&[login, &["INFO", "replication"]].concat()).await.ok()?;
            let info = info.as_str()?.to_owned();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
            let written = field("master_repl_offset:")?.to_owned();
            field("slave0:")?.contains(&format!("offset={written},")).then_some(())
        };
        within(START_LIMIT, is_replicated).await.context("no replica has everything")
    }
}

fn command(program: &Path, port: u16, folder: &Path, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder).args(arguments);
    command
}

/// A server that is ready answers, be it that a password is needed.
pub(crate) fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut first = [0; 1];
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut first).is_ok()
}
