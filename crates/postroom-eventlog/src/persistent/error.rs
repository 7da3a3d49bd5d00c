//! Why something could not be done with a group.

use super::group_id::GroupId;
use super::stream_metadata::StateError;
use crate::expected::AppendError;

/// Why something could not be done with a group.
#[derive(Debug)]
pub(super) enum Error {
    /// There is no such group.
    DoesNotExist(GroupId),
    /// There is one already.
    Exists(GroupId),
    /// It has as many consumers as it may have.
    Full(GroupId),
    /// Its consumers have to subscribe again.
    Dropped(GroupId),
    /// It cannot do it.
    Failed(GroupId, String),
    /// The request makes no sense.
    Invalid(String),
    /// There are too many groups already.
    TooMany(String),
    /// The server stops, or the log cannot write.
    Unavailable(String),
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Append(AppendError::TooLarge { max }) => {
                Self::TooMany(format!("the configuration of all groups may have {max} bytes"))
            }
            other => Self::Unavailable(other.to_string()),
        }
    }
}
