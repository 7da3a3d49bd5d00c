//! Removing finished jobs.

use super::Queue;
use super::script::JOBS_MAX;
use crate::error::QueueError;
use redis::Script;
use std::sync::LazyLock;

const SOURCE: &str = include_str!("remove.lua");
static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

impl Queue {
    /// Removes those of these jobs that have finished, with all their keys. One that waits or
    /// runs stays.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn remove(&self, ids: &[String]) -> Result<(), QueueError> {
        let keys = ["completed", "failed", "meta", "events"].map(|key| self.keys.of(key));
        for part in ids.chunks(JOBS_MAX) {
            self.run::<u8>(&SCRIPT, SOURCE, &keys, |command| {
                command.arg(self.keys.base()).arg(part);
            })
            .await?;
        }
        Ok(())
    }
}
