//! Relays, each a process of its own.

use super::database::INTEGRATION;
use crate::process::hide_database;
use crate::{Process, Signal};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How many work at once.
pub(super) const RELAYS: usize = 3;
/// A paused relay is paused for longer than this.
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(3);

pub(super) struct Relays {
    program: PathBuf,
    folder: TempDir,
    running: Vec<Process>,
}

impl Relays {
    pub(super) fn start(program: &Path, database: &str, receiver: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the relays")?;
        // Retries are quick, so that faults end soon, and never give up, since no fault here is
        // the message's own.
        let config = format!(
            "[database]\nurl = \"{database}\"\n\
             [relay]\nclaim_time = \"{}s\"\nbatch_size = 200\nstop_limit = \"5s\"\n\
             [server]\nlisten = \"127.0.0.1:0\"\n\
             [integrations.\"{INTEGRATION}\"]\nurl = \"{receiver}\"\ntimeout = \"2s\"\n\
             allow_addresses = [\"127.0.0.0/8\"]\n\
             concurrency = 32\n\
             retry = {{ base = \"100ms\", cap = \"1s\", jitter = \"200ms\", max_attempts = \"forever\" }}\n",
            CLAIM_TIME.as_secs()
        );
        std::fs::write(folder.path().join("relay.toml"), config).context("relay.toml")?;
        let mut relays = Self { program: program.to_owned(), folder, running: Vec::new() };
        for _ in 0..RELAYS {
            let relay = relays.spawn();
            relays.running.push(relay);
        }
        Ok(relays)
    }

    fn spawn(&self) -> Process {
        let mut command = Command::new(&self.program);
        command.args(["run", "--config", "relay.toml"]).current_dir(self.folder.path());
        Process::spawn(command.env("RUST_LOG", "error"))
    }

    /// SIGKILL, and a new process in its place.
    pub(super) fn kill(&mut self, relay: usize) {
        self.running[relay].kill9();
        self.running[relay] = self.spawn();
    }

    /// SIGSTOP for this time.
    pub(super) async fn pause(&mut self, relay: usize, time: Duration) {
        self.running[relay].signal(Signal::SIGSTOP);
        tokio::time::sleep(time).await;
        self.running[relay].signal(Signal::SIGCONT);
    }

    /// SIGTERM to all; each must end well.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        for relay in &mut self.running {
            relay.signal(Signal::SIGTERM);
            let status = relay.wait(Duration::from_secs(60)).await;
            ensure!(status.success(), "a relay ended with {status}\n{}", relay.stderr());
        }
        Ok(())
    }
}

/// Runs `postroom` to its end.
pub(super) fn postroom(program: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = hide_database(&mut Command::new(program))
        .args(arguments)
        .output()
        .with_context(|| format!("running {}", program.display()))?;
    ensure!(
        output.status.success(),
        "`postroom {}` failed ({})\n{}",
        arguments[0],
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
