//! Why something could not be done with a group.

use super::group_id::GroupId;
use super::stream_metadata::StateError;
use crate::expected::{AppendError, ReadError};

/// Why something could not be done with a group.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There is no such group.
    #[error("group {0} does not exist")]
    DoesNotExist(GroupId),
    /// There is one already.
    #[error("group {0} exists already")]
    Exists(GroupId),
    /// It has as many consumers as it may have.
    #[error("group {0} has as many consumers as it may have")]
    Full(GroupId),
    /// Its consumers have to subscribe again.
    #[error("the subscription to group {0} was dropped")]
    Dropped(GroupId),
    /// It cannot go on.
    #[error("group {0} failed: {1}")]
    Failed(GroupId, String),
    /// It cannot read what it needs.
    #[error("group {0} cannot read")]
    Unreadable(GroupId, #[source] ReadError),
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// There are too many groups already.
    #[error("{0}")]
    TooMany(String),
    /// The server stops, or the group has just stopped.
    #[error("{0}")]
    Unavailable(String),
    /// What the groups keep in the log cannot be read or written.
    #[error("what groups keep in the log cannot be read or written")]
    State(#[source] StateError),
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Append(AppendError::TooLarge { max }) => {
                Self::TooMany(format!("the configuration of all groups may have {max} bytes"))
            }
            other => Self::State(other),
        }
    }
}
