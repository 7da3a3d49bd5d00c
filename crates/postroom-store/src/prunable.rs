//! What an operator may prune.

use postroom_core::{Status, StoreError, StoreErrorKind, StoreResult};

/// Chooses by the status of what is pruned; the open ones are refused.
pub(crate) fn by_status<T>(status: Status, sent: T, dead: T) -> StoreResult<T> {
    match status {
        Status::Sent => Ok(sent),
        Status::Dead => Ok(dead),
        Status::Pending | Status::Claimed | Status::Failed => Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!("{status} messages are not pruned: only SENT or DEAD ones are"),
        )),
    }
}
