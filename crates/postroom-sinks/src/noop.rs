//! The sink that acknowledges everything and does nothing: for measuring, and for trying out.

use crate::registry::{Build, BuildError, SinkConfig, SinkKind};
use async_trait::async_trait;
use postroom_core::{Message, Report, Sink};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "noop",
    keys: &[],
    concurrency: 4,
    timeout: Duration::from_secs(30),
    read: |_, _| Some(SinkConfig::new(NoopSink)),
};

impl Build for NoopSink {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(*self))
    }
}

/// Acknowledges every message at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopSink;

#[async_trait]
impl Sink for NoopSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for index in 0..batch.len() {
            report.delivered(index);
        }
    }
}
