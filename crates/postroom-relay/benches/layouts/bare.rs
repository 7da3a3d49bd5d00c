//! The store's own statements for a table in a bare loop: as many connections as the relay has, and nothing else.

use crate::BATCH;
use crate::tables::Table;
use postroom_core::{Quota, Settlement, Take};
use postroom_relay::Settings;
use postroom_store::postgres::bare::Bare;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The relay takes on two connections and completes on two.
const PAIRS: usize = 2;
/// As much as the relay takes at once.
const TAKE_BYTES: usize = 4 << 20;

pub(crate) async fn drain(url: &str, table: &Table, rows: usize) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..PAIRS {
        connections.push((connected(url, table).await?, connected(url, table).await?));
    }
    let started = Instant::now();
    let mut tasks = Vec::new();
    for (taking, completing) in connections {
        let (hand_over, batches) = mpsc::channel(1);
        let taker = tokio::spawn(take(taking, hand_over));
        tasks.push((taker, tokio::spawn(complete(completing, batches))));
    }
    let mut done = 0;
    for (taker, completer) in tasks {
        taker.await??;
        done += completer.await??;
    }
    anyhow::ensure!(done == rows, "{done} of {rows} were completed");
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// A connection that is there before the time begins.
async fn connected(url: &str, table: &Table) -> anyhow::Result<Bare> {
    let bare = Bare::on_layout(url, Arc::clone(&table.layout))?;
    bare.settle(&[]).await?;
    Ok(bare)
}

async fn take(bare: Bare, hand_over: mpsc::Sender<Vec<Settlement>>) -> anyhow::Result<()> {
    let quotas = [Quota { integration: "noop".to_owned(), rows: BATCH }];
    let relay = bare.relay(Duration::from_secs(600)).await?;
    let take = Take {
        worker: "bare",
        relay,
        quotas: &quotas,
        rows: BATCH,
        bytes: TAKE_BYTES,
        payload_limit: Settings::default().payload_limit,
        for_queue: false,
    };
    loop {
        let settlements = bare.take(&take).await?;
        if settlements.is_empty() {
            return Ok(());
        }
        hand_over.send(settlements).await?;
    }
}

async fn complete(
    bare: Bare,
    mut batches: mpsc::Receiver<Vec<Settlement>>,
) -> anyhow::Result<usize> {
    let mut done = 0;
    while let Some(settlements) = batches.recv().await {
        done += bare.settle(&settlements).await?;
    }
    Ok(done)
}
