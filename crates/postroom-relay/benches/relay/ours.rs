//! The relay itself, draining to `noop`.

use crate::counting::Counting;
use crate::{BATCH, usage};
use anyhow::Context as _;
use postroom_relay::{Lane, Relay, Settings};
use postroom_store::{OpenOptions, open};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

pub(crate) struct Drained {
    pub(crate) rate: f64,
    pub(crate) peak_mib: f64,
}

/// When SENT is recorded in the messages.
#[derive(Clone, Copy)]
pub(crate) enum Recording {
    AtOnce,
    Background,
}

impl Recording {
    const BACKGROUND: &str = "--background";

    /// What this program's arguments say.
    pub(crate) fn asked_for() -> Self {
        let is_asked_for = std::env::args().any(|arg| arg == Self::BACKGROUND);
        if is_asked_for { Self::Background } else { Self::AtOnce }
    }

    /// The integrations for which it is later.
    pub(crate) fn later(self) -> Vec<String> {
        match self {
            Self::AtOnce => Vec::new(),
            Self::Background => vec!["noop".to_owned()],
        }
    }
}

/// Runs this program again with `--drain`, and reads what it prints.
pub(crate) fn drain_in_child(
    url: &str,
    messages: usize,
    recording: Recording,
) -> anyhow::Result<Drained> {
    let background = match recording {
        Recording::AtOnce => None,
        Recording::Background => Some(Recording::BACKGROUND),
    };
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(["--drain", &messages.to_string()])
        .args(background)
        .env("DATABASE_URL", url)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "the relay's process failed");
    let answer: Value = serde_json::from_slice(&output.stdout).context("the relay's answer")?;
    let number = |key: &str| answer[key].as_f64().context("a number is missing");
    Ok(Drained { rate: number("rate")?, peak_mib: number("peak_mib")? })
}

pub(crate) async fn drain_and_print(
    url: &str,
    messages: usize,
    recording: Recording,
) -> anyhow::Result<()> {
    let rate = drain(url, messages, recording).await?;
    println!("{}", json!({ "rate": rate, "peak_mib": usage::peak_memory_mib() }));
    Ok(())
}

/// From the relay's start until everything is recorded, in messages per second.
async fn drain(url: &str, messages: usize, recording: Recording) -> anyhow::Result<f64> {
    let options = OpenOptions { record_later: recording.later(), ..OpenOptions::default() };
    let store = open(url, &options).await?;
    let all = Arc::new(Notify::new());
    let sink = Counting::until(messages, &all);
    let lane = Lane { concurrency: 2, batch_size: BATCH, ..Lane::new("noop", Arc::new(sink)) };
    let settings = Settings { batch_size: BATCH, ..Settings::default() };
    let relay = Relay::new(store, settings, vec![lane]);
    let started = Instant::now();
    relay.run(all.notified()).await?;
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

/// Records what is still noted, as a relay does when it has time; in messages per second.
pub(crate) async fn record(url: &str) -> anyhow::Result<f64> {
    let store = open(url, &OpenOptions::default()).await?;
    let started = Instant::now();
    let mut recorded = 0_u32;
    loop {
        match store.record_sent(Duration::ZERO, 8).await? {
            0 => break,
            more => recorded += u32::try_from(more)?,
        }
    }
    Ok(f64::from(recorded) / started.elapsed().as_secs_f64())
}
