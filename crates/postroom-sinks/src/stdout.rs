//! The sink that writes each message to standard output as one line of JSON.

use crate::json_line;
use crate::registry::{Build, BuildError, SinkConfig, SinkKind};
use async_trait::async_trait;
use postroom_core::{Message, Outcome, Report, Sink};
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::Mutex;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "stdout",
    keys: &[],
    concurrency: 1,
    timeout: Duration::from_secs(30),
    read: |_, _| Some(SinkConfig::new(StdoutSink)),
};

impl Build for StdoutSink {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(*self))
    }
}

/// One handle for the whole process: two of them could mix their lines.
static STDOUT: LazyLock<Mutex<Stdout>> = LazyLock::new(|| Mutex::new(tokio::io::stdout()));

/// Writes messages to standard output, a line each, flushed before any is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdoutSink;

#[async_trait]
impl Sink for StdoutSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let (lines, written) = json_line::of_batch(batch, report);
        let result = write(&lines).await;
        for index in written {
            report.outcome(index, classify(&result));
        }
    }
}

async fn write(lines: &[u8]) -> io::Result<()> {
    let mut stdout = STDOUT.lock().await;
    stdout.write_all(lines).await?;
    stdout.flush().await
}

/// A closed pipe concerns the destination, never the message.
fn classify(result: &io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Delivered,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Outcome::refuse(
            "standard output is closed: start postroom again with a reader behind it",
        ),
        Err(error) => Outcome::retry(format!("cannot write to standard output: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_pauses_the_lane_and_costs_no_attempt() {
        let closed = classify(&Err(io::ErrorKind::BrokenPipe.into()));
        assert!(matches!(closed, Outcome::Refuse { .. }));
        let other = classify(&Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(other, Outcome::Retry { .. }));
    }
}
