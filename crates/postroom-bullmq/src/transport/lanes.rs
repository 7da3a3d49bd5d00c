//! What the transport is told of its lanes.

use super::data::JobData;
use super::names::QueuePattern;
use crate::worker::Rate;
use postroom_core::{RetryPolicy, Sink};
use std::sync::Arc;
use std::time::Duration;

/// An integration whose messages go through a queue.
#[derive(Clone)]
pub struct QueueLane {
    /// The integration.
    pub integration: String,
    /// How its queues are called.
    pub queue: QueuePattern,
    /// What its jobs carry.
    pub data: JobData,
    /// The most jobs that one relay has in one queue.
    pub outstanding_max: usize,
    /// When a failed message is due again, and when it is dead.
    pub retry: RetryPolicy,
    /// Who runs the jobs.
    pub workers: Workers,
}

impl QueueLane {
    /// Whether workers of ours run jobs of several queues, which they serve in turn.
    pub(crate) fn has_own_workers_by_tenant(&self) -> bool {
        matches!(self.workers, Workers::Own(_)) && self.queue.is_by_tenant()
    }
}

/// Who runs a lane's jobs.
#[derive(Clone)]
pub enum Workers {
    /// Ours, in a relay and in worker processes: they deliver, and settle with the outbox.
    Own(Delivery),
    /// Somebody's BullMQ code, which knows no outbox: what becomes of its jobs is looked at.
    External,
}

/// How our workers deliver.
#[derive(Clone)]
pub struct Delivery {
    /// Where to.
    pub sink: Arc<dyn Sink>,
    /// How many jobs run at once, in one process.
    pub concurrency: usize,
    /// How long one delivery may take.
    pub timeout: Duration,
    /// How many jobs of one queue start within a time, over all workers.
    pub rate: Option<Rate>,
}
