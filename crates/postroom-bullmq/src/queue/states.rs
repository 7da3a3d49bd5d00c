//! Where jobs are.

use super::Queue;
use super::script::JOBS_MAX;
use crate::error::QueueError;
use postroom_core::clip_error;
use redis::Script;
use std::sync::LazyLock;

const SOURCE: &str = include_str!("states.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

/// The class of an error that makes another try useless.
const UNRECOVERABLE: &str = "UnrecoverableError";
/// How a traceback of Python begins.
const TRACEBACK: &str = "Traceback (most recent call last):";

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

/// Whether the last of the stack traces, a JSON array of them, is that of an `UnrecoverableError`.
/// Node writes the error's class at its beginning, Python with its module behind the frames.
fn is_unrecoverable(stacks: &str) -> bool {
    let stacks: Vec<String> = serde_json::from_str(stacks).unwrap_or_default();
    let Some(stack) = stacks.last() else { return false };
    stack.starts_with(UNRECOVERABLE) || python_class(stack) == Some(UNRECOVERABLE)
}

/// The class of the error that a traceback of Python ends with, without its module. Where one error
/// led to another, the last traceback is that of the error that was raised.
fn python_class(stack: &str) -> Option<&str> {
    let (before, last) = stack.rsplit_once(TRACEBACK)?;
    // At the beginning of a line: it is not part of a message.
    if !(before.is_empty() || before.ends_with('\n')) {
        return None;
    }
    // Frames are indented, and what an error says may go over several lines.
    let error = last.lines().skip(1).find(|line| !line.starts_with(' ') && !line.is_empty())?;
    let class = error.split(':').next()?.trim_end();
    class.rsplit('.').next()
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

    /// As `bullmq` 3.4.4 of PyPI stores it.
    #[test]
    fn an_unrecoverable_error_in_python_is_known_by_the_end_of_its_traceback() {
        const FRAMES: &str = "Traceback (most recent call last):\n  \
             File \"/app/bullmq/worker.py\", line 449, in processJob\n    \
             result = await self.processor(job, token)\n             ^^^^^^^^^^^^^^^^^^^^^^^^\n  \
             File \"/app/worker.py\", line 14, in process\n    raise error(reason)\n";
        const CLASS: &str = "bullmq.custom_errors.unrecoverable_error.UnrecoverableError";
        let of = |end: &str| serde_json::json!([format!("{FRAMES}{end}\n")]).to_string();
        let chained = "\nDuring handling of the above exception, another exception occurred:\n\n";
        for unrecoverable in [
            format!("{CLASS}: not today"),
            CLASS.to_owned(),
            "UnrecoverableError: not\ntoday: at all".to_owned(),
            format!("ValueError: no\n{chained}{FRAMES}{CLASS}: not today"),
        ] {
            assert!(is_unrecoverable(&of(&unrecoverable)), "{unrecoverable}");
        }
        for other in [
            "RuntimeError: UnrecoverableError: not today".to_owned(),
            "app.NotUnrecoverableError: not today".to_owned(),
            format!("{CLASS}: no\n{chained}{FRAMES}ValueError: not today"),
            format!("ValueError: {CLASS}"),
            "ValueError: not\nUnrecoverableError: today".to_owned(),
        ] {
            assert!(!is_unrecoverable(&of(&other)), "{other}");
        }
    }
}
