//! Looking through the jobs that have finished and are kept.

use super::{JobState, Queue};
use crate::error::QueueError;
use redis::cmd;

/// Where a look through the finished jobs goes on. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FinishedPage {
    set: FinishedSet,
    cursor: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum FinishedSet {
    #[default]
    Completed,
    Failed,
}

/// A page of finished jobs.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The jobs, each completed, dropped or failed, in no order. One may come twice.
    pub jobs: Vec<(String, JobState)>,
    /// The next page; `None` after the last. A page without jobs need not be the last.
    pub next: Option<FinishedPage>,
}

impl Queue {
    /// About `limit` of the jobs that are kept after they have finished. A look from the first
    /// page to the last comes past every job that was there all the while, whatever is added or
    /// removed in between.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn finished(&self, page: FinishedPage, limit: usize) -> Result<Finished, QueueError> {
        let set = match page.set {
            FinishedSet::Completed => "completed",
            FinishedSet::Failed => "failed",
        };
        let mut command = cmd("ZSCAN");
        command.arg(self.keys.of(set)).arg(page.cursor).arg("COUNT").arg(limit.max(1));
        let (cursor, found): (u64, Vec<(String, f64)>) = self.redis.link.ask(&command).await?;
        let ids: Vec<String> = found.into_iter().map(|(id, _)| id).collect();
        let states = self.states(&ids).await?;
        let is_finished = |(_, state): &(String, JobState)| match state {
            JobState::Completed | JobState::Dropped | JobState::Failed { .. } => true,
            // Removed or tried again in between.
            JobState::Gone | JobState::Live => false,
        };
        let jobs = ids.into_iter().zip(states).filter(is_finished).collect();
        let next = match (page.set, cursor) {
            (set, 1..) => Some(FinishedPage { set, cursor }),
            (FinishedSet::Completed, 0) => {
                Some(FinishedPage { set: FinishedSet::Failed, cursor: 0 })
            }
            (FinishedSet::Failed, 0) => None,
        };
        Ok(Finished { jobs, next })
    }
}
