//! A job's run, and how its end is told to BullMQ.

use super::flights::{Flights, Started};
use super::processor::{Job, JobFailure, Processor};
use crate::queue::{DROPPED, Queue, now_ms};
use bullmq::Error;
use bullmq::types::RemoveOnFinish;
use futures_util::FutureExt as _;
use postroom_core::clip_error;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long to wait before the end of a job is told again.
const PAUSE: Duration = Duration::from_millis(200);

/// How a run ended.
enum End {
    Completed,
    Dropped,
    Failed { reason: String, is_final: bool },
    Later(Duration),
    Recalled,
}

/// Runs one job for BullMQ's client. What is returned tells it what to do; [`Error::Delayed`]
/// tells it to do nothing.
pub(super) async fn run(
    flights: &Flights,
    processor: &dyn Processor,
    job: bullmq::Job,
) -> Result<Value, Error> {
    let job = Arc::new(job);
    let Started { number, lost, recalled, is_late } = flights.start(&job);
    let end = if is_late {
        End::Recalled
    } else {
        let ours = Job::new(Arc::clone(&job), lost.clone());
        let run = AssertUnwindSafe(async { processor.process(ours).await }).catch_unwind();
        tokio::select! {
            biased;
            Ok(()) = recalled => End::Recalled,
            end = run => match end {
                Ok(Ok(())) => End::Completed,
                Ok(Err(JobFailure::Failed { reason })) => End::Failed { reason, is_final: false },
                Ok(Err(JobFailure::Unrecoverable { reason })) => {
                    End::Failed { reason, is_final: true }
                }
                Ok(Err(JobFailure::Dropped)) => End::Dropped,
                Ok(Err(JobFailure::Later(delay))) => End::Later(delay),
                Err(_) => {
                    tracing::error!(queue = flights.queue().name(), job = job.id(), "panic");
                    let reason = "the worker panicked while it ran this job".to_owned();
                    End::Failed { reason, is_final: false }
                }
            }
        }
    };
    if *lost.borrow() {
        // Nothing that is said of it now would be about our run.
        flights.land(job.id(), number);
        return Err(Error::Delayed);
    }
    let options = Options::of(flights.queue(), &job).await;
    match end {
        End::Completed if options.are_known => {
            flights.completing(job.id(), number);
            return Ok(Value::Null);
        }
        // BullMQ's client knows how to try it again, or which failed jobs to keep.
        End::Failed { reason, is_final } if options.are_known && !options.is_plain => {
            flights.land(job.id(), number);
            let reason = clip_error(&reason);
            let error = if is_final { Error::Unrecoverable } else { Error::ProcessingError };
            return Err(error(reason));
        }
        end => {
            flights.ending(job.id(), number);
            tell(flights, &job, &options, end).await;
            flights.land(job.id(), number);
        }
    }
    Err(Error::Delayed)
}

/// Tells the end of a job until Redis has heard it, or for as long as the lock lasts.
async fn tell(flights: &Flights, job: &bullmq::Job, options: &Options, end: End) {
    let begun = Instant::now();
    loop {
        let told = match &end {
            End::Completed => {
                complete_with(flights.queue(), job, "", options.removes_completed).await
            }
            End::Dropped => {
                complete_with(flights.queue(), job, DROPPED, options.removes_completed).await
            }
            End::Failed { is_final: false, .. } if options.attempts > job.attempts_started() => {
                job.move_to_delayed(now_ms() + options.backoff_ms).await
            }
            End::Failed { reason, .. } => job.clone().move_to_failed(&clip_error(reason)).await,
            End::Later(delay) => {
                let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                job.move_to_delayed(now_ms().saturating_add(delay)).await
            }
            End::Recalled => job.move_to_wait(None).await.map(|_| ()),
        };
        let queue = flights.queue().name();
        match told {
            Ok(()) => return,
            Err(Error::Redis(error)) if begun.elapsed() < flights.lock_time() => {
                tracing::warn!(queue, job = job.id(), %error, "end of job not told yet");
                sleep(PAUSE).await;
            }
            // The job is gone or another's, or will be once its lock is.
            Err(error) => {
                tracing::warn!(queue, job = job.id(), %error, "end of job not told");
                return;
            }
        }
    }
}

/// Completes a job that BullMQ's client could not complete. Says whether there is nothing left to
/// do: it is completed, or was before, or is not ours any more.
pub(super) async fn complete(queue: &Queue, job: &bullmq::Job) -> bool {
    let removes = removes(job.opts().remove_on_complete.as_ref());
    match complete_with(queue, job, "", removes).await {
        Err(Error::Redis(_)) => false,
        Ok(()) | Err(_) => true,
    }
}

async fn complete_with(
    queue: &Queue,
    job: &bullmq::Job,
    value: &str,
    removes: bool,
) -> Result<(), Error> {
    // This keeps the job, whatever its options say.
    job.clone().move_to_completed(value).await?;
    if removes && let Err(error) = queue.remove(&[job.id().to_owned()]).await {
        tracing::warn!(queue = queue.name(), job = job.id(), %error, "completed job stays");
    }
    Ok(())
}

fn removes(policy: Option<&RemoveOnFinish>) -> bool {
    match policy {
        Some(RemoveOnFinish::Bool(removes)) => *removes,
        Some(RemoveOnFinish::Count(kept)) => *kept == 0,
        Some(RemoveOnFinish::Options(_)) | None => false,
    }
}

/// What a job's options say about its end.
struct Options {
    /// Whether BullMQ's client could read them. Where it cannot read one, it forgets all, and
    /// would keep a job that is to be removed, or not try again one that should be.
    are_known: bool,
    /// Whether a failed job is just kept: no second attempt, no limit on failed jobs.
    is_plain: bool,
    attempts: u32,
    backoff_ms: u64,
    removes_completed: bool,
}

impl Options {
    async fn of(queue: &Queue, job: &bullmq::Job) -> Self {
        let read = job.opts();
        // Every client writes this one.
        if let Some(attempts) = read.attempts {
            let keeps_failed =
                matches!(read.remove_on_fail, None | Some(RemoveOnFinish::Bool(false)));
            return Self {
                are_known: true,
                is_plain: attempts <= 1 && keeps_failed,
                attempts,
                backoff_ms: 0,
                removes_completed: removes(read.remove_on_complete.as_ref()),
            };
        }
        let stored = queue.stored_options(job.id()).await.unwrap_or_default();
        let number = |value: &Value| value.as_f64().map(|number| number as u64);
        let removed = &stored["removeOnComplete"];
        let options = Self {
            are_known: false,
            is_plain: false,
            attempts: number(&stored["attempts"]).and_then(|n| n.try_into().ok()).unwrap_or(0),
            backoff_ms: number(&stored["backoff"]["delay"]).unwrap_or(0),
            removes_completed: removed == true || removed == 0 || removed["count"] == 0,
        };
        tracing::debug!(queue = queue.name(), job = job.id(), "options read by ourselves");
        options
    }
}
