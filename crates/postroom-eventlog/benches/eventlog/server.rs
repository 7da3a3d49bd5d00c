//! The server, in a process of its own.

use anyhow::{Context as _, ensure};
use kurrentdb::Client;
use postroom_eventlog::server::ServerSettings;
use postroom_eventlog::{EventLog, Settings, server};
use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The variable by which this program knows that it is the server, with its folder.
pub(crate) const FOLDER: &str = "POSTROOM_BENCH_EVENTLOG";

/// Serves until standard input ends.
pub(crate) async fn serve(folder: &Path) -> anyhow::Result<()> {
    let log = EventLog::open(folder, Settings::default())?;
    let settings = ServerSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
    let server = server::Server::bind(log.clone(), settings)?;
    println!("{}", server.connection_string());
    std::io::stdout().flush()?;
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    server.serve(async { drop(ended.await) }).await?;
    log.close().await;
    Ok(())
}

/// A running server. It ends with the value, or with this program.
pub(crate) struct Server {
    child: Child,
    url: String,
    folder: TempDir,
}

impl Server {
    /// Starts one on an empty folder, on the disk that the build is on.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let program = env::current_exe().context("the path of this program")?;
        let near = program.parent().context("the folder of this program")?;
        let folder = tempfile::tempdir_in(near).context("a folder for the log")?;
        let mut child = Command::new(&program)
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the server")?;
        let mut url = String::new();
        let stdout = child.stdout.take().context("its standard output is piped")?;
        BufReader::new(stdout).read_line(&mut url)?;
        ensure!(url.starts_with("esdb://"), "the server did not start");
        Ok(Self { child, url: url.trim().to_owned(), folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its address for a client that is not the official one.
    pub(crate) fn address(&self) -> String {
        let host = self.url.trim_start_matches("esdb://").split('?').next().unwrap_or_default();
        format!("http://{host}")
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let settings = self.url.parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Client::new(settings).map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// The most memory that it had, in MiB.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok(kib.context("VmHWM")? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends by itself then, and there is nothing to do where it already has.
        let _ = self.child.wait();
    }
}
