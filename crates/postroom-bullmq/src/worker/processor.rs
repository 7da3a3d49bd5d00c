//! What runs a job.

use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Runs jobs.
#[async_trait]
pub trait Processor: fmt::Debug + Send + Sync {
    /// Runs one job. The job ends in the queue only once this has returned, and by what it
    /// returned. It may be dropped at any await when the worker stops; the job then goes back to
    /// the queue. The same job may come more than once.
    async fn process(&self, job: Job) -> Result<(), JobFailure>;
}

/// A job that a worker has taken. Cheap to clone.
#[derive(Clone)]
pub struct Job {
    inner: Arc<bullmq::Job>,
    lost: watch::Receiver<bool>,
}

impl Job {
    pub(super) fn new(inner: Arc<bullmq::Job>, lost: watch::Receiver<bool>) -> Self {
        Self { inner, lost }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Its data; null when that is no JSON. Numbers and the order of keys are as serde_json
    /// keeps them.
    #[must_use]
    pub fn data(&self) -> &Value {
        self.inner.data()
    }

    /// How often it was taken by a worker, this time included.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.inner.attempts_started()
    }

    /// Whether the worker has lost its lock: the job is gone, or another worker's.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// How a job did not end well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JobFailure {
    /// It failed. BullMQ tries it again if its options say so, which those of [`crate::NewJob`]
    /// do not.
    Failed {
        /// Why; kept with the job.
        reason: String,
    },
    /// It failed, and trying again is of no use.
    Unrecoverable {
        /// Why; kept with the job.
        reason: String,
    },
    /// There was nothing to do for it. It completes, and its return value says so, lest anybody take
    /// it for done.
    Dropped,
    /// It cannot run now, and should come again after this time. Nothing else is recorded.
    Later(Duration),
}
