//! How clients are told why something could not be done: a status, and trailers that name it.

use super::error::Error;
use super::group_id::GroupId;
use super::stream_metadata::StateError;
use super::subscriber::Ended;
use crate::expected::AppendError;
use crate::server::status::{exception, stopping, trailer, with_sources};
use tonic::{Code, Status};

/// The status of an error.
pub(super) fn of_error(error: Error) -> Status {
    match error {
        Error::DoesNotExist(id) => named(
            &id,
            Code::NotFound,
            "persistent-subscription-does-not-exist",
            does_not_exist(&id),
        ),
        Error::Exists(id) => {
            let text = format!("Group {} of {} exists already.", id.group(), id.stream());
            named(&id, Code::AlreadyExists, "persistent-subscription-exists", text)
        }
        Error::Full(id) => {
            // The client for Python goes by how this text begins.
            let (group, stream) = (id.group(), id.stream());
            let text = format!("Maximum subscriptions reached for group {group} of {stream}.");
            named(&id, Code::FailedPrecondition, "maximum-subscribers-reached", text)
        }
        Error::Dropped(id) => {
            let text =
                format!("The subscription to group {} of {} was dropped.", id.group(), id.stream());
            named(&id, Code::Cancelled, "persistent-subscription-dropped", text)
        }
        Error::Failed(id, reason) => failed(&id, &reason),
        Error::Unreadable(id, error) => failed(&id, &with_sources(&error)),
        Error::Invalid(text) => Status::invalid_argument(text),
        Error::TooMany(text) => Status::resource_exhausted(text),
        Error::Unavailable(text) => Status::unavailable(text),
        Error::State(error @ StateError::Append(AppendError::StreamDeleted)) => {
            let text = format!("a stream that groups keep their state in: {error}");
            Status::failed_precondition(text)
        }
        Error::State(error) => Status::unavailable(with_sources(&error)),
    }
}

fn failed(id: &GroupId, reason: &str) -> Status {
    let text = format!("Group {} of {} failed: {reason}", id.group(), id.stream());
    let mut status = named(id, Code::Internal, "persistent-subscription-failed", text);
    trailer(&mut status, "reason", reason);
    status
}

/// The status with which a subscription ends.
pub(super) fn of_end(id: &GroupId, ended: Ended) -> Status {
    match ended {
        Ended::Dropped => of_error(Error::Dropped(id.clone())),
        Ended::Unavailable => stopping(),
        Ended::Failed(reason) => of_error(Error::Failed(id.clone(), reason)),
        Ended::Invalid(text) => of_error(Error::Invalid(text)),
    }
}

/// That a stream has no group at all.
pub(super) fn no_groups(stream: &str) -> Status {
    let text = format!("{stream} has no persistent subscriptions.");
    let mut status = exception(Code::NotFound, "persistent-subscription-does-not-exist", text);
    trailer(&mut status, "stream-name", stream);
    trailer(&mut status, "group-name", "");
    status
}

fn does_not_exist(id: &GroupId) -> String {
    format!("Group {} of {} does not exist.", id.group(), id.stream())
}

fn named(id: &GroupId, code: Code, name: &'static str, text: String) -> Status {
    let mut status = exception(code, name, text);
    trailer(&mut status, "stream-name", id.stream());
    trailer(&mut status, "group-name", id.group());
    status
}
