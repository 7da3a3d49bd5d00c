//! What a worker wrote to its message's row by itself, which counts for more than how its job ended.
//!
//! A worker may report to the outbox instead of BullMQ: it catches its error, marks the row FAILED
//! or DEAD, and its job completes all the same. No job is added for a row that says FAILED (see
//! `reopening.rs`), so a row that says so when its job ends was marked by the job's worker.

use crate::queue::JobState;
use postroom_core::{Dispatched, Message, Outcome, Status};

/// What became of the attempt whose job has ended like this. `failed_before` is how many attempts had
/// failed before it, where that is known. `None` for a job that is still waiting or running, and for
/// one that is gone or was dropped: it was no attempt.
pub(crate) fn outcome(
    row: &Dispatched,
    state: &JobState,
    failed_before: Option<u32>,
) -> Option<Outcome> {
    let of_job = match state {
        JobState::Live | JobState::Gone | JobState::Dropped => return None,
        JobState::Completed => Outcome::Delivered,
        JobState::Failed { reason, unrecoverable: true } => Outcome::reject(reason.clone()),
        JobState::Failed { reason, unrecoverable: false } => Outcome::retry(reason.clone()),
    };
    let error = || {
        let written = row.last_error.clone().filter(|error| !error.is_empty());
        written.unwrap_or_else(|| format!("its worker marked it {} without an error", row.status))
    };
    Some(match row.status {
        Status::Sent => Outcome::Delivered,
        Status::Dead => Outcome::reject(error()),
        Status::Failed => Outcome::retry(error()),
        // Counted as failed by a worker that leaves the status as a dispatcher of its own wants it.
        Status::Pending | Status::Claimed
            if of_job == Outcome::Delivered
                && failed_before.is_some_and(|before| row.message.attempts > before) =>
        {
            Outcome::retry(error())
        }
        Status::Pending | Status::Claimed => of_job,
    })
}

/// The message as it was before its worker counted the attempt, for a retry policy that counts it.
pub(crate) fn before_attempt(message: &Message, failed_before: Option<u32>) -> Message {
    let attempts = failed_before
        .map_or(message.attempts, |before| before.max(message.attempts.saturating_sub(1)));
    Message { attempts, ..message.clone() }
}

/// Whether it matters how many attempts had failed before: not where neither the outbox nor the
/// worker has counted any.
pub(crate) fn needs_count(row: &Dispatched) -> bool {
    row.message.attempts > 0 || row.number > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::data::foreign;

    fn row(status: Status, attempts: u32, last_error: Option<&str>) -> Dispatched {
        let mut message = foreign("noop", "job", "t", &serde_json::Value::Null);
        message.attempts = attempts;
        Dispatched { message, number: 1, status, last_error: last_error.map(str::to_owned) }
    }

    #[test]
    fn the_row_counts_for_more_than_the_end_of_the_job() {
        let thrown = JobState::Failed { reason: "thrown".to_owned(), unrecoverable: false };
        for state in [JobState::Completed, thrown] {
            let of = |row: &Dispatched| outcome(row, &state, Some(0));
            assert_eq!(of(&row(Status::Sent, 0, None)), Some(Outcome::Delivered));
            assert_eq!(of(&row(Status::Failed, 1, Some("503"))), Some(Outcome::retry("503")));
            assert_eq!(of(&row(Status::Dead, 0, Some("400"))), Some(Outcome::reject("400")));
        }
        let unsaid = outcome(&row(Status::Failed, 0, None), &JobState::Completed, None);
        assert!(matches!(unsaid, Some(Outcome::Retry { error, .. }) if error.contains("FAILED")));
    }

    #[test]
    fn a_row_that_nobody_marked_leaves_it_to_the_job() {
        let pending = |attempts| row(Status::Pending, attempts, Some("503"));
        let completed =
            |attempts, before| outcome(&pending(attempts), &JobState::Completed, before);
        assert_eq!(completed(2, Some(2)), Some(Outcome::Delivered));
        assert_eq!(completed(2, None), Some(Outcome::Delivered));
        assert_eq!(completed(3, Some(2)), Some(Outcome::retry("503")));
        for state in [JobState::Live, JobState::Gone, JobState::Dropped] {
            assert_eq!(outcome(&row(Status::Failed, 1, None), &state, Some(0)), None);
        }
    }

    #[test]
    fn an_attempt_is_counted_once_whoever_counts_it() {
        for (attempts, before, expected) in
            [(2, None, 2), (2, Some(2), 2), (3, Some(2), 2), (0, Some(2), 2), (9, Some(2), 8)]
        {
            let message = row(Status::Failed, attempts, None).message;
            assert_eq!(before_attempt(&message, before).attempts, expected);
        }
    }
}
