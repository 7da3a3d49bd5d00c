//! Adding jobs in bulk.

use super::script::JOBS_MAX;
use super::{Queue, job_id};
use crate::error::QueueError;
use postroom_core::RawJson;
use redis::{Cmd, Script};
use serde_json::json;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

const SOURCE: &str = include_str!("add.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// How many bytes of data one call carries, unless a single job has more.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Redis's limit on one value cannot be set below this.
const LARGE: usize = 1024 * 1024;

/// A job to add. It runs at once and at most once: BullMQ never tries it again.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Unique in its queue while the job is there, finished or not.
    pub id: String,
    /// What BullMQ calls the job's name.
    pub name: String,
    /// What the worker gets.
    pub data: RawJson,
    /// Whether the job stays once it has completed, until somebody removes it. One that fails
    /// always does.
    pub keep_finished: bool,
    /// How many attempts at its message had failed before; kept with the job.
    pub failed_before: u32,
}

/// What became of a job that was to be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Added {
    /// It is in the queue now.
    New,
    /// A job of this id was there already, waiting, running or finished. Nothing was added.
    Exists,
    /// Redis or BullMQ will never take it, and why.
    Refused(String),
}

impl Queue {
    /// Adds jobs, in their order, and says of each whether it is new.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses all of it. Some may have been added; the same call
    /// again finds those as [`Added::Exists`].
    pub async fn add(&self, jobs: &[NewJob]) -> Result<Vec<Added>, QueueError> {
        let mut added = Vec::with_capacity(jobs.len());
        let mut rest = jobs;
        while !rest.is_empty() {
            let (part, later) = rest.split_at(part(rest));
            match self.add_part(part).await {
                Ok(answers) => added.extend(answers),
                Err(error) if may_be_too_much(&error, part) => {
                    for job in part {
                        added.push(self.add_one(job).await?);
                    }
                }
                Err(error) => return Err(error),
            }
            rest = later;
        }
        Ok(added)
    }

    /// Adds a job of which Redis may not want to hear.
    async fn add_one(&self, job: &NewJob) -> Result<Added, QueueError> {
        let alone = std::slice::from_ref(job);
        match self.add_part(alone).await {
            Ok(mut answers) => Ok(answers.remove(0)),
            Err(QueueError::Refused { problem, .. }) => Ok(Added::Refused(problem)),
            Err(error) if may_be_too_much(&error, alone) => {
                self.redis.probe().await?;
                Ok(Added::Refused(format!(
                    "{error}, and only while this job is sent: its {} bytes are too many; send a \
                     reference instead, or raise `proto-max-bulk-len` there",
                    job.data.as_str().len()
                )))
            }
            Err(error) => Err(error),
        }
    }

    async fn add_part(&self, jobs: &[NewJob]) -> Result<Vec<Added>, QueueError> {
        let mut added: Vec<Option<Added>> = jobs
            .iter()
            .map(|job| job_id::fault(&job.id).map(|fault| Added::Refused(fault.to_owned())))
            .collect();
        let sent = || jobs.iter().zip(&added).filter(|(_, fault)| fault.is_none());
        let arguments = |command: &mut Cmd| {
            command.arg(self.keys.base()).arg(now_ms());
            for (job, _) in sent() {
                command.arg(&job.id).arg(&job.name).arg(job.data.as_str()).arg(options(job));
                command.arg(job.failed_before);
            }
        };
        let keys = ["wait", "paused", "meta", "id", "active", "events", "marker"];
        let keys = keys.map(|key| self.keys.of(key));
        let answers: Vec<u8> = if sent().next().is_some() {
            self.run(&SCRIPT, SOURCE, &keys, arguments).await?
        } else {
            Vec::new()
        };
        let mut answers = answers.into_iter();
        for one in &mut added {
            if one.is_none() {
                let is_new = answers.next().ok_or_else(|| self.unfit("adding jobs"))? == 1;
                *one = Some(if is_new { Added::New } else { Added::Exists });
            }
        }
        Ok(added.into_iter().flatten().collect())
    }

    /// An answer that no script of ours gives.
    pub(super) fn unfit(&self, what: &str) -> QueueError {
        let problem = format!("its answer to {what} makes no sense: is that a Redis?");
        QueueError::misconfigured(self.redis.place(), problem)
    }
}

/// Whether one of these jobs can be the reason: Redis refuses it, or hangs up before it has heard
/// it to the end.
fn may_be_too_much(error: &QueueError, jobs: &[NewJob]) -> bool {
    let has_large = || jobs.iter().any(|job| job.data.as_str().len() >= LARGE);
    matches!(error, QueueError::Refused { .. }) || (error.is_lost() && has_large())
}

/// How many of the first jobs go into one call.
fn part(jobs: &[NewJob]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&NewJob| {
        bytes += job.data.as_str().len() + job.name.len();
        bytes <= BYTES_MAX
    };
    jobs.iter().take(JOBS_MAX).take_while(fits).count().max(1)
}

/// The job's options as BullMQ stores them.
fn options(job: &NewJob) -> String {
    json!({
        "attempts": 1,
        "jobId": job.id,
        "removeOnComplete": !job.keep_finished,
        "removeOnFail": false,
    })
    .to_string()
}

/// The time as BullMQ counts it.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(bytes: usize) -> NewJob {
        NewJob {
            id: "a".to_owned(),
            name: String::new(),
            data: RawJson::trusted(format!("\"{}\"", "x".repeat(bytes))),
            keep_finished: false,
            failed_before: 0,
        }
    }

    #[test]
    fn a_call_is_limited_in_jobs_and_in_bytes_and_has_at_least_one() {
        assert_eq!(part(&vec![job(10); 2 * JOBS_MAX]), JOBS_MAX);
        assert_eq!(part(&[job(BYTES_MAX), job(1)]), 1);
        assert_eq!(part(&vec![job(BYTES_MAX / 2 - 100); 3]), 2);
    }
}
