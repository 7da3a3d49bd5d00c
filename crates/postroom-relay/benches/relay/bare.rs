//! The store's own statements in a bare loop: the same number of connections take and complete,
//! with as many batches under way as the relay has, and nothing else.

use crate::BATCH;
use crate::ours::Recording;
use postroom_core::{Quota, Settlement, Take};
use postroom_relay::Settings;
use postroom_store::postgres::bare::Bare;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The relay takes on two connections and completes on two.
const PAIRS: usize = 2;
/// As much as the relay takes at once.
const TAKE_BYTES: usize = 4 << 20;

pub(crate) async fn drain(url: &str, messages: usize, recording: Recording) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..PAIRS {
        connections.push((connected(url, recording).await?, connected(url, recording).await?));
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
    anyhow::ensure!(done == messages, "{done} of {messages} were completed");
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

/// A connection that is there before the time begins.
async fn connected(url: &str, recording: Recording) -> anyhow::Result<Bare> {
    let bare = Bare::new(url, recording.later())?;
    bare.settle(&[]).await?;
    Ok(bare)
}

async fn take(bare: Bare, hand_over: mpsc::Sender<Vec<Settlement>>) -> anyhow::Result<()> {
    let quotas = [Quota { integration: "noop".to_owned(), rows: BATCH }];
    let settings = Settings::default();
    let relay = bare.relay(Duration::from_secs(600)).await?;
    let take = Take {
        worker: "bare",
        relay,
        quotas: &quotas,
        rows: BATCH,
        bytes: TAKE_BYTES,
        payload_limit: settings.payload_limit,
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
