//! The threads of a log: one appends, one brings the table of the index up to date.

use crate::appender::{self, Requests};
use crate::reader::Reader;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How much there is at most to read again when the log is opened after a crash, in time.
const FLUSH_EVERY: Duration = Duration::from_secs(10);

/// Both threads.
#[derive(Debug)]
pub(crate) struct Threads {
    append: JoinHandle<()>,
    index: JoinHandle<()>,
}

impl Threads {
    /// Starts both. They end when the senders are gone, and everything is on disk then.
    pub(crate) fn start(reader: &Arc<Reader>, segment_size: u64) -> io::Result<(Requests, Self)> {
        let (wants_flush, flush) = mpsc::sync_channel(1);
        let index = Arc::clone(&reader.index);
        let index = Builder::new().name("eventlog-index".to_owned()).spawn(move || {
            loop {
                let wanted = flush.recv_timeout(FLUSH_EVERY);
                if let Err(error) = index.flush() {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the index of the event log cannot be written; trying again"
                    );
                }
                if let Err(RecvTimeoutError::Disconnected) = wanted {
                    return;
                }
            }
        })?;
        let (requests, append) = appender::start(Arc::clone(reader), segment_size, wants_flush)?;
        Ok((requests, Self { append, index }))
    }

    /// Waits until both have ended. The senders must be gone.
    pub(crate) fn join(self) {
        for thread in [self.append, self.index] {
            if thread.join().is_err() {
                tracing::error!("a thread of the event log panicked; see above");
            }
        }
    }
}
