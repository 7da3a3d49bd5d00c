//! The relay itself, draining a table to `noop`.

use crate::BATCH;
use crate::tables::Table;
use postroom_core::{Message, Report, Sink};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::NoopSink;
use postroom_store::{OpenOptions, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// Counts what `noop` acknowledges.
struct Counting {
    seen: AtomicUsize,
    until: usize,
    all: Arc<Notify>,
}

#[async_trait::async_trait]
impl Sink for Counting {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        NoopSink.deliver(batch, report).await;
        if self.seen.fetch_add(batch.len(), Ordering::Relaxed) + batch.len() == self.until {
            self.all.notify_one();
        }
    }
}

/// From the relay's start until everything is recorded, in rows per second.
pub(crate) async fn drain(url: &str, table: &Table, rows: usize) -> anyhow::Result<f64> {
    let layout = Some(Arc::clone(&table.layout));
    let store = open(url, &OpenOptions { layout, ..OpenOptions::default() }).await?;
    let all = Arc::new(Notify::new());
    let sink = Counting { seen: AtomicUsize::new(0), until: rows, all: Arc::clone(&all) };
    let lane = Lane { concurrency: 2, batch_size: BATCH, ..Lane::new("noop", Arc::new(sink)) };
    let settings = Settings { batch_size: BATCH, ..Settings::default() };
    let relay = Relay::new(store, settings, vec![lane]);
    let started = Instant::now();
    relay.run(all.notified()).await?;
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}
