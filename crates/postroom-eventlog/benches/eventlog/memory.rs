//! That memory does not follow the log.

use super::append::fill;
use super::catch_up::caught_up;
use super::reported::report;
use super::{Server, Size};
use serde_json::json;

/// The most memory that the server had over a million events, which were appended and read.
pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = Server::start()?;
    let parts = 4;
    let part = size.pick(250_000, 2_000);
    let mut peaks = Vec::new();
    for filled in 1..=parts {
        fill(&server, part).await?;
        caught_up(&server, filled * part).await?;
        peaks.push(server.peak_memory()?.round());
    }
    let notes = json!({ "events": parts * part, "peaks_by_quarter": peaks });
    report("memory", server.peak_memory()?, "MiB", &notes);
    Ok(())
}
