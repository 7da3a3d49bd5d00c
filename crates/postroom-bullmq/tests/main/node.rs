//! Scripts that run in Node with the real BullMQ.

use crate::servers::LONG;
use postroom_testkit::{Bullmq, Process};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node").join(name)
}

/// A worker in Node that is ready. `options` are BullMQ's own.
pub(crate) async fn worker(
    bullmq: Bullmq,
    address: SocketAddr,
    queue: &str,
    mut options: Value,
) -> Process {
    options["port"] = address.port().into();
    options["queue"] = queue.into();
    let worker = Process::spawn(&mut bullmq.script(&script("worker.mjs"), &options).unwrap());
    worker.wait_for_line("ready", LONG).await;
    worker
}

/// A listener to a queue's events that is ready.
pub(crate) async fn events(bullmq: Bullmq, address: SocketAddr, queue: &str) -> Process {
    let options = json!({"port": address.port(), "queue": queue});
    let events = Process::spawn(&mut bullmq.script(&script("events.mjs"), &options).unwrap());
    events.wait_for_line("ready", LONG).await;
    events
}

/// Does these things with a queue, as `queue.mjs` names them, and returns what came of each.
pub(crate) async fn steps(
    bullmq: Bullmq,
    address: SocketAddr,
    queue: &str,
    steps: Value,
) -> Vec<Value> {
    let options = json!({"port": address.port(), "queue": queue, "steps": steps});
    let mut process = Process::spawn(&mut bullmq.script(&script("queue.mjs"), &options).unwrap());
    let status = process.wait(LONG).await;
    assert!(status.success(), "{}", process.stderr());
    serde_json::from_str(&process.stdout()).unwrap()
}

/// How many lines begin with `words`.
pub(crate) fn count(process: &Process, words: &str) -> usize {
    process.stdout().lines().filter(|line| line.starts_with(words)).count()
}
