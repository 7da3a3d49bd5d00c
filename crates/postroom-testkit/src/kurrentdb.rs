//! KurrentDB's official clients in Node and Python.

use crate::packages::{node_locked, python_with};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Node's client, at the version that the lock file names.
const NODE: &str = "@kurrent/kurrentdb-client@1.3.1";

/// Python's client, and what it needs, each at the version that it was tested with.
const PYTHON: &[&str] = &["kurrentdbclient==1.3.5", "grpcio==1.85.1", "grpcio-status==1.85.1"];

/// An official client of KurrentDB that is not written in Rust.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KurrentDbClient {
    /// npm's `@kurrent/kurrentdb-client`, part of which is a native module.
    Node,
    /// PyPI's `kurrentdbclient`.
    Python,
}

impl KurrentDbClient {
    /// The version that is installed.
    #[must_use]
    pub fn version(self) -> &'static str {
        let (package, separator) = match self {
            Self::Node => (NODE, '@'),
            Self::Python => (PYTHON[0], '='),
        };
        package.rsplit(separator).next().unwrap_or_default()
    }

    /// A command that runs a script, which gets these options as JSON. In Node, the folder of the
    /// modules comes before them.
    ///
    /// # Errors
    /// When the client cannot be installed, for a skip.
    pub fn script(self, script: &Path, options: &serde_json::Value) -> anyhow::Result<Command> {
        let mut command = match self {
            Self::Node => {
                let mut command = Command::new("node");
                command.arg(script).arg(modules()?);
                command
            }
            Self::Python => {
                let mut command = Command::new(python_with(PYTHON)?);
                command.arg(script);
                command
            }
        };
        command.arg(options.to_string());
        Ok(command)
    }
}

fn modules() -> anyhow::Result<PathBuf> {
    node_locked(
        &[NODE],
        include_str!("../node/kurrentdb-1/package.json"),
        include_str!("../node/kurrentdb-1/package-lock.json"),
    )
}
