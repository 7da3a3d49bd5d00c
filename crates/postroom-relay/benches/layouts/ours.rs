//! The relay itself, draining a table to `noop`.

use crate::BATCH;
use crate::counting::Counting;
use crate::tables::Table;
use postroom_relay::{Lane, Relay, Settings};
use postroom_store::{OpenOptions, open};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;

/// From the relay's start until everything is recorded, in rows per second.
pub(crate) async fn drain(url: &str, table: &Table, rows: usize) -> anyhow::Result<f64> {
    let layout = Some(Arc::clone(&table.layout));
    let store = open(url, &OpenOptions { layout, ..OpenOptions::default() }).await?;
    let all = Arc::new(Notify::new());
    let sink = Counting::until(rows, &all);
    let lane = Lane { concurrency: 2, batch_size: BATCH, ..Lane::new("noop", Arc::new(sink)) };
    let settings = Settings { batch_size: BATCH, ..Settings::default() };
    let relay = Relay::new(store, settings, vec![lane]);
    let started = Instant::now();
    relay.run(all.notified()).await?;
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}
