//! Which status a client gets for what went wrong.
//!
//! Clients tell errors apart by the code, by the trailer `exception`, and some by the text of the
//! message, so the text of the first two below is part of the protocol.

use super::wire;
use crate::proto::google::rpc;
use crate::proto::shared;
use crate::{AppendError, ExpectedRevision, ReadError, SubscriptionError};
use prost::Message;
use std::fmt::Write as _;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Status};

/// What a client hears when the server stops: it then connects again.
pub(crate) fn stopping() -> Status {
    Status::unavailable("the server is stopping")
}

/// A status with the trailer by which clients know it.
pub(crate) fn exception(code: Code, exception: &'static str, message: String) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("exception", AsciiMetadataValue::from_static(exception));
    Status::with_metadata(code, message, metadata)
}

/// Adds a trailer. A value that a header cannot carry, such as a stream's name in Chinese, is
/// percent-encoded.
pub(crate) fn trailer(status: &mut Status, name: &'static str, value: &str) {
    let is_fit = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let value = if is_fit { value.to_owned() } else { percent_encoded(value) };
    if let Ok(value) = AsciiMetadataValue::try_from(value) {
        status.metadata_mut().insert(name, value);
    }
}

/// As much of a name as a status may have: clients refuse headers that are too long.
fn shown(name: &str) -> &str {
    const LONGEST: usize = 1_000;
    &name[..name.floor_char_boundary(LONGEST)]
}

fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// An error with what is behind it, for those who get no more than a text.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The stream is tombstoned.
pub(crate) fn stream_deleted(stream: &str) -> Status {
    let stream = shown(stream);
    let message = format!("Event stream '{stream}' is deleted.");
    let mut status = exception(Code::FailedPrecondition, "stream-deleted", message);
    trailer(&mut status, "stream-name", stream);
    status
}

/// The stream is not as a deletion expects it.
fn wrong_expected(
    operation: &str,
    stream: &str,
    expected: ExpectedRevision,
    current: Option<u64>,
) -> Status {
    let stream = shown(stream);
    let expected = wire::expected_number(expected).to_string();
    let actual = current.map_or_else(|| "-1".to_owned(), |revision| revision.to_string());
    let message = format!(
        "{operation} failed due to WrongExpectedVersion. Stream: {stream}, \
         Expected version: {expected}, Actual version: {actual}"
    );
    let mut status = exception(Code::FailedPrecondition, "wrong-expected-version", message);
    trailer(&mut status, "stream-name", stream);
    trailer(&mut status, "expected-version", &expected);
    trailer(&mut status, "actual-version", &actual);
    status
}

/// An append with more bytes than the log allows.
pub(crate) fn too_large(max: usize) -> Status {
    let message = format!("an append may have at most {max} bytes");
    let mut status = exception(Code::InvalidArgument, "maximum-append-size-exceeded", message);
    trailer(&mut status, "maximum-append-size", &max.to_string());
    status
}

/// An event without what describes it.
pub(crate) fn missing_metadata(names: &[&str]) -> Status {
    let names = names.join(",");
    let message = format!("an event's metadata lacks {names}");
    let mut status =
        exception(Code::InvalidArgument, "missing-required-metadata-property", message);
    trailer(&mut status, "required-metadata-properties", &names);
    status
}

/// There is no scavenge with this id.
pub(crate) fn scavenge_not_found(id: &str) -> Status {
    let message = "no scavenge with this id is under way".to_owned();
    let mut status = exception(Code::NotFound, "scavenge-not-found", message);
    trailer(&mut status, "scavenge-id", shown(id));
    status
}

/// Why an append, a deletion or a tombstone failed.
pub(crate) fn of_append(operation: &str, stream: &str, error: &AppendError) -> Status {
    match error {
        AppendError::WrongExpectedRevision { expected, current } => {
            wrong_expected(operation, stream, *expected, *current)
        }
        AppendError::StreamDeleted => stream_deleted(stream),
        AppendError::TooLarge { max } => too_large(*max),
        AppendError::Invalid(_) => Status::invalid_argument(error.to_string()),
        AppendError::Computed(_) => {
            exception(Code::PermissionDenied, "access-denied", error.to_string())
        }
        AppendError::Unavailable(_) => Status::unavailable(with_sources(error)),
    }
}

/// Why something could not be read.
pub(crate) fn of_read(stream: &str, error: &ReadError) -> Status {
    match error {
        ReadError::StreamDeleted => stream_deleted(stream),
        ReadError::Io(_) | ReadError::Index(_) => Status::internal(with_sources(error)),
        ReadError::IndexDamaged | ReadError::Damaged { .. } => Status::data_loss(error.to_string()),
    }
}

/// Why a subscription ended. A log that was closed is opened again somewhere, so the client is to
/// try again.
pub(crate) fn of_subscription(stream: &str, error: &SubscriptionError) -> Status {
    match error {
        SubscriptionError::Read(error) => of_read(stream, error),
        SubscriptionError::Closed => stopping(),
    }
}

/// Why one append of a batch failed. There is always a detail: the client for Node crashes without.
pub(crate) fn in_batch(stream: &str, error: &AppendError) -> rpc::Status {
    match error {
        AppendError::WrongExpectedRevision { expected, current } => detailed(
            Code::FailedPrecondition,
            "WrongExpectedVersion".to_owned(),
            "WrongExpectedVersion",
            &wire::wrong_expected(*expected, *current),
        ),
        AppendError::StreamDeleted => detailed(
            Code::FailedPrecondition,
            "StreamDeleted".to_owned(),
            "StreamDeleted",
            &shared::StreamDeleted { stream_identifier: Some(wire::identifier(stream)) },
        ),
        AppendError::TooLarge { max } => detailed(
            Code::InvalidArgument,
            error.to_string(),
            "MaximumAppendSizeExceeded",
            &shared::MaximumAppendSizeExceeded {
                max_append_size: u32::try_from(*max).unwrap_or(u32::MAX),
            },
        ),
        AppendError::Invalid(_) => bad_request(error.to_string()),
        AppendError::Computed(_) => detailed(
            Code::PermissionDenied,
            error.to_string(),
            "AccessDenied",
            &shared::AccessDenied {},
        ),
        AppendError::Unavailable(_) => {
            detailed(Code::Unavailable, with_sources(error), "Unknown", &shared::Unknown {})
        }
    }
}

/// An append of a batch that is malformed.
pub(crate) fn bad_request(message: String) -> rpc::Status {
    let detail = shared::BadRequest { message: message.clone() };
    detailed(Code::InvalidArgument, message, "BadRequest", &detail)
}

/// An append of a batch whose deadline passed; it may have been made all the same.
pub(crate) fn timed_out() -> rpc::Status {
    detailed(Code::DeadlineExceeded, "Timeout".to_owned(), "Timeout", &shared::Timeout {})
}

fn detailed(code: Code, message: String, name: &str, detail: &impl Message) -> rpc::Status {
    let details = prost_types::Any {
        type_url: format!("type.googleapis.com/event_store.client.{name}"),
        value: detail.encode_to_vec(),
    };
    rpc::Status { code: code as i32, message, details: Some(details) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailer_of<'a>(status: &'a Status, name: &str) -> &'a str {
        status.metadata().get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn a_deletion_with_another_revision_expected_tells_both_in_text_and_trailers() {
        let error = AppendError::WrongExpectedRevision {
            expected: ExpectedRevision::Exact(7),
            current: Some(3),
        };
        let status = of_append("Delete", "order-1", &error);
        assert_eq!(status.code(), Code::FailedPrecondition);
        // The client for Python reads this text.
        assert_eq!(
            status.message(),
            "Delete failed due to WrongExpectedVersion. Stream: order-1, Expected version: 7, \
             Actual version: 3"
        );
        assert_eq!(trailer_of(&status, "exception"), "wrong-expected-version");
        assert_eq!(trailer_of(&status, "stream-name"), "order-1");
        assert_eq!(trailer_of(&status, "expected-version"), "7");
        assert_eq!(trailer_of(&status, "actual-version"), "3");
    }

    #[test]
    fn a_stream_that_is_not_there_has_version_minus_one() {
        let error = AppendError::WrongExpectedRevision {
            expected: ExpectedRevision::StreamExists,
            current: None,
        };
        let status = of_append("Delete", "order-1", &error);
        assert_eq!(trailer_of(&status, "expected-version"), "-4");
        assert_eq!(trailer_of(&status, "actual-version"), "-1");
    }

    #[test]
    fn a_tombstoned_stream_is_a_failed_precondition_with_its_name() {
        let status = of_read("order-1", &ReadError::StreamDeleted);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(trailer_of(&status, "exception"), "stream-deleted");
        assert_eq!(trailer_of(&status, "stream-name"), "order-1");
        assert!(status.message().contains("is deleted"));
    }

    #[test]
    fn a_name_that_no_header_can_carry_is_percent_encoded() {
        assert_eq!(trailer_of(&stream_deleted("日 %"), "stream-name"), "%E6%97%A5%20%25");
    }

    #[test]
    fn a_name_that_is_too_long_for_a_header_is_cut() {
        let status = stream_deleted(&"日".repeat(1_300));
        assert!(trailer_of(&status, "stream-name").len() < 4_096);
        assert!(status.message().len() < 1_100);
    }

    #[test]
    fn an_append_that_is_too_large_tells_the_limit() {
        let status = of_append("Append", "order-1", &AppendError::TooLarge { max: 1024 });
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(trailer_of(&status, "exception"), "maximum-append-size-exceeded");
        assert_eq!(trailer_of(&status, "maximum-append-size"), "1024");
    }

    #[test]
    fn codes_tell_a_client_whether_to_try_again() {
        let unavailable = AppendError::Unavailable("the disk is full".to_owned());
        assert_eq!(of_append("Append", "s", &unavailable).code(), Code::Unavailable);
        let computed = AppendError::Computed("$ce-order".to_owned());
        assert_eq!(of_append("Append", "s", &computed).code(), Code::PermissionDenied);
        let invalid = AppendError::Invalid("too long a name".to_owned());
        assert_eq!(of_append("Append", "s", &invalid).code(), Code::InvalidArgument);
        let damaged = ReadError::Damaged { segment: "1".to_owned(), offset: 5 };
        assert_eq!(of_read("s", &damaged).code(), Code::DataLoss);
        assert_eq!(of_subscription("s", &SubscriptionError::Closed).code(), Code::Unavailable);
    }

    #[test]
    fn each_failure_in_a_batch_has_a_detail_that_clients_can_unpack() {
        let wrong = AppendError::WrongExpectedRevision {
            expected: ExpectedRevision::NoStream,
            current: Some(3),
        };
        let status = in_batch("order-1", &wrong);
        let details = status.details.unwrap();
        assert_eq!(details.type_url, "type.googleapis.com/event_store.client.WrongExpectedVersion");
        let detail = shared::WrongExpectedVersion::decode(details.value.as_slice()).unwrap();
        assert_eq!(detail, wire::wrong_expected(ExpectedRevision::NoStream, Some(3)));
        let errors = [
            AppendError::StreamDeleted,
            AppendError::TooLarge { max: 1 },
            AppendError::Invalid(String::new()),
            AppendError::Computed(String::new()),
            AppendError::Unavailable(String::new()),
        ];
        for error in errors {
            let status = in_batch("order-1", &error);
            assert_ne!(status.code, 0);
            assert!(status.details.is_some(), "{error:?}");
        }
        assert!(timed_out().details.is_some());
    }
}
