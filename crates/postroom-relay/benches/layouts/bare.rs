//! The store's own statements for a table in a bare loop.

use crate::tables::Table;
use crate::{BATCH, bare_loop};
use postroom_store::postgres::bare::Bare;
use std::sync::Arc;

pub(crate) async fn drain(url: &str, table: &Table, rows: usize) -> anyhow::Result<f64> {
    let mut pairs = Vec::new();
    for _ in 0..bare_loop::PAIRS {
        pairs.push((connected(url, table).await?, connected(url, table).await?));
    }
    bare_loop::drain(pairs, rows, BATCH).await
}

/// A connection that is there before the time begins.
async fn connected(url: &str, table: &Table) -> anyhow::Result<Bare> {
    let bare = Bare::on_layout(url, Arc::clone(&table.layout))?;
    bare.settle(&[]).await?;
    Ok(bare)
}
