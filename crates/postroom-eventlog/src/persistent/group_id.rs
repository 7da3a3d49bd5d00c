//! Which group is meant, and the streams in which it keeps its state.

use super::source::{ALL, STATE_PREFIX};
use crate::log::record::LONGEST_NAME;
use std::fmt;

/// The longest name of a group, in bytes.
pub(super) const GROUP_NAME_MAX: usize = 255;
/// What the names of a group's streams have beyond those of its stream and itself.
const STATE_NAME_EXTRA: usize = 64;

/// A group of a stream, or of the whole log.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct GroupId {
    stream: String,
    group: String,
}

impl GroupId {
    /// The group of this name.
    ///
    /// # Errors
    /// When a name is empty or too long. A group's name has no `::` and does not begin with `:`,
    /// because the names of its streams would be those of another group's.
    pub(super) fn new(stream: String, group: String) -> Result<Self, String> {
        if stream.is_empty() {
            return Err("the name of the stream is missing".to_owned());
        }
        if group.is_empty() || group.len() > GROUP_NAME_MAX {
            return Err(format!("a group's name must have 1 to {GROUP_NAME_MAX} bytes"));
        }
        if group.contains("::") || group.starts_with(':') {
            return Err("a group's name must not contain `::` or begin with `:`".to_owned());
        }
        if stream.len() + group.len() + STATE_NAME_EXTRA > LONGEST_NAME {
            return Err("the name of the stream is too long for a persistent subscription".into());
        }
        Ok(Self { stream, group })
    }

    /// The name of its stream, `$all` for the whole log.
    pub(super) fn stream(&self) -> &str {
        &self.stream
    }

    /// Its own name.
    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Whether it is a group of the whole log.
    pub(super) fn is_all(&self) -> bool {
        self.stream == ALL
    }

    /// The stream with its checkpoints.
    pub(super) fn checkpoint_stream(&self) -> String {
        format!("{STATE_PREFIX}{self}-checkpoint")
    }

    /// The stream with its parked messages.
    pub(super) fn parked_stream(&self) -> String {
        format!("{STATE_PREFIX}{self}-parked")
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.stream, self.group)
    }
}
