//! The store's own statements in a bare loop.

use crate::ours::Recording;
use crate::{BATCH, bare_loop};
use postroom_store::postgres::bare::Bare;

pub(crate) async fn drain(url: &str, messages: usize, recording: Recording) -> anyhow::Result<f64> {
    let mut pairs = Vec::new();
    for _ in 0..bare_loop::PAIRS {
        pairs.push((connected(url, recording).await?, connected(url, recording).await?));
    }
    bare_loop::drain(pairs, messages, BATCH).await
}

/// A connection that is there before the time begins.
async fn connected(url: &str, recording: Recording) -> anyhow::Result<Bare> {
    let bare = Bare::new(url, recording.later())?;
    bare.settle(&[]).await?;
    Ok(bare)
}
