//! The reference: npm's BullMQ, told what to do line by line.

use crate::server::{Measured, Server};
use crate::{CALL, CALLS, CONCURRENCY};
use anyhow::{Context as _, ensure};
use postroom_testkit::Bullmq;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

pub(crate) struct Reference {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Reference {
    pub(crate) fn start(server: &Server) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/bullmq/reference.mjs");
        let options = json!({
            "port": server.port(), "queue": server.queue.name(), "jobs": server.jobs, "call": CALL,
            "calls": CALLS, "concurrency": CONCURRENCY,
        });
        let mut process = Bullmq::V6
            .script(&script, &options)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting node")?;
        let input = process.stdin.take().context("its input is piped")?;
        let output = BufReader::new(process.stdout.take().context("its output is piped")?);
        let mut reference = Self { process, input, output };
        reference.hear("ready")?;
        Ok(reference)
    }

    pub(crate) async fn add(&mut self, server: &Server) -> anyhow::Result<Measured> {
        server.adds(async || self.tell("add", "added")).await
    }

    pub(crate) async fn consume(&mut self, server: &Server) -> anyhow::Result<Measured> {
        writeln!(self.input, "work")?;
        let measured = server.consumes().await?;
        self.hear("working")?;
        self.tell("stop", "stopped")?;
        Ok(measured)
    }

    fn tell(&mut self, word: &str, answer: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{word}")?;
        self.hear(answer)
    }

    fn hear(&mut self, expected: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == expected, "node said {line:?} instead of {expected}");
        Ok(())
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
