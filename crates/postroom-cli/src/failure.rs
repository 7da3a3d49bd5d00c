//! How a command ends when it does not succeed.

use crate::config::Faults;
use postroom_core::{StoreError, with_causes};
use postroom_relay::RelayError;
use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the configuration is wrong: nothing was done.
    Usage(String),
    /// It was tried, and failed.
    Failed(anyhow::Error),
    /// It was tried and failed, and has said so on standard output.
    Told,
    /// A signal ended it, with this exit code.
    Interrupted(u8),
}

impl Failure {
    /// Says what is wrong on standard error, with its causes: in a line for people, or as a JSON
    /// object for programs.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        let kind = match self {
            Self::Usage(_) => Some("usage"),
            Self::Failed(_) => Some("failed"),
            Self::Interrupted(_) => Some("interrupted"),
            Self::Told => None,
        };
        match kind {
            Some(kind) if json => {
                eprintln!("{}", serde_json::json!({ "error": self.to_string(), "kind": kind }));
            }
            Some(_) => eprintln!("postroom: {self}"),
            None => {}
        }
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Told => ExitCode::FAILURE,
            Self::Interrupted(code) => ExitCode::from(*code),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            Self::Failed(error) => f.write_str(&with_causes(error.as_ref())),
            Self::Told => f.write_str("it failed"),
            Self::Interrupted(_) => f.write_str(
                "interrupted; what the database was doing at that moment may still take effect \
                 there, and `postroom messages actions` shows what was changed in an outbox",
            ),
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::Usage(faults.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        Self::Failed(error.into())
    }
}
