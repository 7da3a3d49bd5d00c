//! BullMQ in Node, as others use it.

use crate::packages::node_locked;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A major version of the npm package `bullmq`, with the `ioredis` beside it that it needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bullmq {
    /// Widely deployed.
    V5,
    /// The newest.
    V6,
}

impl Bullmq {
    /// A folder whose `node_modules` has it.
    ///
    /// # Errors
    /// When it cannot be installed, for a skip.
    pub fn modules(self) -> anyhow::Result<PathBuf> {
        match self {
            Self::V5 => node_locked(
                &["bullmq@5.81.5", "ioredis@5.11.1"],
                include_str!("../node/bullmq-5/package.json"),
                include_str!("../node/bullmq-5/package-lock.json"),
            ),
            Self::V6 => node_locked(
                &["bullmq@6.7.0", "ioredis@5.11.1"],
                include_str!("../node/bullmq-6/package.json"),
                include_str!("../node/bullmq-6/package-lock.json"),
            ),
        }
    }

    /// A command that runs a script, which gets the folder of the modules and these options.
    ///
    /// # Errors
    /// When it cannot be installed, for a skip.
    pub fn script(self, script: &Path, options: &serde_json::Value) -> anyhow::Result<Command> {
        let mut command = Command::new("node");
        command.arg(script).arg(self.modules()?).arg(options.to_string());
        Ok(command)
    }
}
