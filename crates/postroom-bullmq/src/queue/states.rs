//! Where jobs are.

use super::Queue;
use super::script::JOBS_MAX;
use crate::error::QueueError;
use postroom_core::clip_error;
use redis::Script;
use std::sync::LazyLock;

const SOURCE: &str = include_str!("states.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// What a job returns that was dropped, and that as it is stored.
pub(crate) const DROPPED: &str = "postroom:dropped";
pub(super) const DROPPED_STORED: &str = "\"postroom:dropped\"";

/// Where a job is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JobState {
    /// There is no such job, or not any more.
    Gone,
    /// It waits, runs or is delayed.
    Live,
    /// It has run with success, and is kept.
    Completed,
    /// It has ended without being run, and is kept: see [`crate::JobFailure::Dropped`].
    Dropped,
    /// It has failed for good, and is kept.
    Failed {
        /// What its worker said, clipped.
        reason: String,
        /// Whether its worker said that trying again is of no use: BullMQ's
        /// `UnrecoverableError`.
        unrecoverable: bool,
    },
}

impl Queue {
    /// Where each of these jobs is.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn states(&self, ids: &[String]) -> Result<Vec<JobState>, QueueError> {
        let mut states = Vec::with_capacity(ids.len());
        let keys = [self.keys.of("completed"), self.keys.of("failed")];
        for part in ids.chunks(JOBS_MAX) {
            let answers: Vec<(u8, String, String)> = self
                .run(&SCRIPT, SOURCE, &keys, |command| {
                    command.arg(self.keys.base()).arg(DROPPED_STORED).arg(part);
                })
                .await?;
            if answers.len() != part.len() {
                return Err(self.unfit("a look at jobs"));
            }
            for (state, reason, stack) in answers {
                states.push(match state {
                    0 => JobState::Gone,
                    2 => JobState::Completed,
                    4 => JobState::Dropped,
                    3 => JobState::Failed {
                        reason: clip_error(&reason),
                        unrecoverable: is_unrecoverable(&stack),
                    },
                    _ => JobState::Live,
                });
            }
        }
        Ok(states)
    }
}

/// Whether the last of the stack traces, a JSON array of them, is that of an
/// `UnrecoverableError`: its first line begins with the error's class.
fn is_unrecoverable(stacks: &str) -> bool {
    let stacks: Vec<String> = serde_json::from_str(stacks).unwrap_or_default();
    stacks.last().is_some_and(|stack| stack.starts_with("UnrecoverableError"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unrecoverable_error_is_known_by_its_stack_trace() {
        assert!(is_unrecoverable(r#"["UnrecoverableError: no\n    at Worker.f (a.mjs:1:2)"]"#));
        assert!(is_unrecoverable(r#"["Error: once\n  at a", "UnrecoverableError: no\n  at b"]"#));
        for other in
            ["", "[]", "null", r#"["Error: UnrecoverableError"]"#, r#"["UnrecoverableError",""]"#]
        {
            assert!(!is_unrecoverable(other), "{other}");
        }
    }
}
