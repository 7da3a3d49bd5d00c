//! Bare statements in a loop: as many connections take and complete as a relay has, with as many batches under way,
//! and nothing else.

use postroom_core::{Quota, Settlement, Take};
use postroom_relay::Settings;
use postroom_store::postgres::bare::Bare;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The relay takes on two connections and completes on two.
pub(crate) const PAIRS: usize = 2;
/// As much as the relay takes at once.
const TAKE_BYTES: usize = 4 << 20;

/// Drains what is fresh in the lane `noop`, in batches of so many, by pairs of connections that are there before the
/// time begins; in messages per second.
pub(crate) async fn drain(
    pairs: Vec<(Bare, Bare)>,
    messages: usize,
    batch: usize,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut tasks = Vec::new();
    for (taking, completing) in pairs {
        let (hand_over, batches) = mpsc::channel(1);
        let taker = tokio::spawn(take(taking, batch, hand_over));
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

async fn take(
    bare: Bare,
    batch: usize,
    hand_over: mpsc::Sender<Vec<Settlement>>,
) -> anyhow::Result<()> {
    let quotas = [Quota { integration: "noop".to_owned(), rows: batch }];
    let relay = bare.relay(Duration::from_secs(600)).await?;
    let take = Take {
        worker: "bare",
        relay,
        quotas: &quotas,
        rows: batch,
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
