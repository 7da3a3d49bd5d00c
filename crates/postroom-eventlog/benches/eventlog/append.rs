//! Appends: in batches, and one by one.

use super::figure::{Figure, median};
use super::reported::report;
use super::{PAYLOAD, Server, Size, bare, event, payload};
use kurrentdb::{BatchAppendClient, BatchAppendOptions, EventData, StreamState};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Events of one append, and how many appends are under way at once.
const BATCH: usize = 100;
const WRITERS: usize = 8;

/// Appends of many events, against as many synced writes of the bytes of their data.
pub(crate) async fn batches(size: Size) -> anyhow::Result<()> {
    let appends = size.pick(3_200, 16);
    let bytes = payload().repeat(BATCH);
    let mut rounds = Vec::new();
    let mut server = Server::start()?;
    for round in 0..=size.pick(5, 1) {
        if round % 2 == 0 {
            // So that the disk's free space does not decide.
            server = Server::start()?;
        }
        let ours = appended(&server, appends, BATCH, WRITERS).await? * BATCH as f64;
        let reference = bare::synced_writes(server.folder(), &bytes, appends)? * BATCH as f64;
        if round > 0 {
            rounds.push((ours, reference));
        }
    }
    Figure {
        bench: "eventlog",
        name: "append_batch",
        rounds,
        reference_is: "a bare loop that writes the bytes of each batch's data and syncs",
        unit: "events/s",
        more_is_better: true,
        notes: json!({ "batch": BATCH, "payload": PAYLOAD, "writers": WRITERS, "events": appends * BATCH }),
    }
    .print();
    Ok(())
}

/// Appends of one event, by one writer and by several.
pub(crate) async fn singles(size: Size) -> anyhow::Result<()> {
    let server = Server::start()?;
    for writers in [1, WRITERS] {
        let appends = size.pick(2_000, 10) * writers;
        let mut rounds = Vec::new();
        for _ in 0..size.pick(3, 1) {
            rounds.push(appended(&server, appends, 1, writers).await?);
        }
        let name = if writers == 1 { "append_single" } else { "append_single_8" };
        report(name, median(rounds), "appends/s", &json!({ "writers": writers }));
    }
    Ok(())
}

/// Appends so often, by so many writers that each wait for their answer; says how many a second.
async fn appended(
    server: &Server,
    appends: usize,
    batch: usize,
    writers: usize,
) -> anyhow::Result<f64> {
    let client = server.client()?;
    let appender = client.batch_append(&BatchAppendOptions::default()).await;
    let appender: Arc<BatchAppendClient> = Arc::new(appender.map_err(failed)?);
    // Their making is the application's work.
    let mut prepared: Vec<Vec<Vec<EventData>>> = Vec::new();
    for _ in 0..writers {
        let share = (0..appends / writers).map(|_| (0..batch).map(|_| event()).collect());
        prepared.push(share.collect());
    }
    let began = Instant::now();
    let mut tasks = Vec::new();
    for (writer, share) in prepared.into_iter().enumerate() {
        let appender = Arc::clone(&appender);
        tasks.push(tokio::spawn(async move {
            let stream = format!("bench-{writer}");
            for events in share {
                let appended = appender.append_to_stream(&stream, StreamState::Any, events);
                appended.await.map_err(failed)?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(appends as f64 / began.elapsed().as_secs_f64())
}

pub(crate) fn failed(error: kurrentdb::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

/// Fills a log, in large appends: a multiple of 2,000 events.
pub(crate) async fn fill(server: &Server, events: usize) -> anyhow::Result<()> {
    appended(server, events / 500, 500, 4).await.map(|_| ())
}
