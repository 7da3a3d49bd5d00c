//! The sink that writes each message to standard output as one line of JSON.

use crate::json_line;
use crate::registry::{Build, BuildError, SinkConfig, SinkKind};
use async_trait::async_trait;
use postroom_core::{Message, Outcome, Report, Sink};
use std::io::{self, Write as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
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

/// One writer at a time in the whole process: two of them could mix their lines. Holds whether
/// the last line may be unfinished.
static IS_MID_LINE: LazyLock<Arc<Mutex<bool>>> = LazyLock::new(Arc::default);

/// Writes messages to standard output, a line each, flushed before any is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdoutSink;

#[async_trait]
impl Sink for StdoutSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let (lines, written) = json_line::of_batch(batch, report);
        let result = write(lines).await;
        for index in written {
            report.outcome(index, classify(&result));
        }
    }
}

/// Once it has begun, it goes on to the end of the lines, whether or not anyone waits for that.
async fn write(lines: Vec<u8>) -> io::Result<()> {
    let mut is_mid_line = Arc::clone(&IS_MID_LINE).lock_owned().await;
    let writing = tokio::task::spawn_blocking(move || {
        let mut stdout = io::stdout().lock();
        if *is_mid_line {
            stdout.write_all(b"\n")?;
        }
        *is_mid_line = true;
        stdout.write_all(&lines)?;
        stdout.flush()?;
        *is_mid_line = false;
        Ok(())
    });
    writing.await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)))
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
