//! A sink that acknowledges everything, and says when that was enough.

use postroom_core::{Message, Report, Sink};
use postroom_sinks::NoopSink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Counts what `noop` acknowledges.
pub(crate) struct Counting {
    seen: AtomicUsize,
    until: usize,
    all: Arc<Notify>,
}

impl Counting {
    /// Tells `all` once so many were acknowledged.
    pub(crate) fn until(until: usize, all: &Arc<Notify>) -> Self {
        Self { seen: AtomicUsize::new(0), until, all: Arc::clone(all) }
    }
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
