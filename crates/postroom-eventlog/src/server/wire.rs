//! Between the values of the wire and those of the log.

use super::status;
use crate::log::record::LONGEST_NAME;
use crate::proto::shared::{self, Empty, StreamIdentifier, uuid};
use crate::{ExpectedRevision, NewEvent};
use ::uuid::Uuid;
use bytes::Bytes;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::Status;

/// The content type of an event whose data is JSON.
pub(crate) const JSON: &str = "application/json";
/// The content type of any other event.
pub(crate) const BINARY: &str = "application/octet-stream";

const ALL: &str = "$all";

/// The name of a stream that a request is about.
pub(crate) fn stream_name(identifier: Option<StreamIdentifier>) -> Result<String, Status> {
    let bytes = identifier.map(|identifier| identifier.stream_name).unwrap_or_default();
    if bytes.len() > LONGEST_NAME {
        let text = format!("the name of a stream has at most {LONGEST_NAME} bytes");
        return Err(Status::invalid_argument(text));
    }
    let name = String::from_utf8(bytes.into())
        .map_err(|_| Status::invalid_argument("the name of a stream must be valid UTF-8"))?;
    match name.as_str() {
        "" => Err(Status::invalid_argument("the name of the stream is missing")),
        ALL => Err(Status::invalid_argument("$all is not a stream that a request can name")),
        _ => Ok(name),
    }
}

/// A stream as the wire names it.
pub(crate) fn identifier(stream: &str) -> StreamIdentifier {
    StreamIdentifier { stream_name: Bytes::copy_from_slice(stream.as_bytes()) }
}

/// The id that a request carries.
pub(crate) fn uuid(id: Option<&shared::Uuid>) -> Result<Uuid, Status> {
    match id.and_then(|id| id.value.as_ref()) {
        Some(uuid::Value::Structured(halves)) => {
            let high = halves.most_significant_bits as u64;
            let low = halves.least_significant_bits as u64;
            Ok(Uuid::from_u64_pair(high, low))
        }
        Some(uuid::Value::String(text)) => {
            Uuid::try_parse(text).map_err(|_| Status::invalid_argument("an id is not a UUID"))
        }
        None => Err(Status::invalid_argument("an id is missing")),
    }
}

/// An id as two numbers.
pub(crate) fn structured(id: Uuid) -> shared::Uuid {
    let (high, low) = id.as_u64_pair();
    let halves =
        uuid::Structured { most_significant_bits: high as i64, least_significant_bits: low as i64 };
    shared::Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// A place in the whole log.
pub(crate) fn position(position: u64) -> shared::Position {
    shared::Position { commit_position: position, prepare_position: position }
}

/// Now, as the wire tells the time.
pub(crate) fn now() -> prost_types::Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    prost_types::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}

/// How long from now until a time of day; `None` for one that is so far away that nobody waits for
/// it.
pub(crate) fn until(time: &prost_types::Timestamp) -> Option<Duration> {
    let now = now();
    let seconds = time.seconds.saturating_sub(now.seconds);
    let nanos = time.nanos.saturating_sub(now.nanos);
    duration(seconds, nanos)
}

/// A duration of the wire, zero if it is negative; `None` for one that nobody waits for.
pub(crate) fn duration(seconds: i64, nanos: i32) -> Option<Duration> {
    const LONGEST: i64 = 30 * 24 * 60 * 60;
    if seconds > LONGEST {
        return None;
    }
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Some(Duration::from_nanos(u64::try_from(total.max(0)).unwrap_or_default()))
}

/// An event that a client wants to append.
pub(crate) fn new_event(mut proposed: shared::ProposedMessage) -> Result<NewEvent, Status> {
    let id = uuid(proposed.id.as_ref())?;
    let (event_type, content_type) =
        match (proposed.metadata.remove("type"), proposed.metadata.get("content-type")) {
            (Some(event_type), Some(content_type)) => (event_type, content_type),
            (Some(_), None) => return Err(status::missing_metadata(&["content-type"])),
            (None, Some(_)) => return Err(status::missing_metadata(&["type"])),
            (None, None) => return Err(status::missing_metadata(&["type", "content-type"])),
        };
    Ok(NewEvent {
        id,
        event_type,
        is_json: content_type == JSON,
        data: proposed.data,
        metadata: proposed.custom_metadata,
    })
}

/// The number by which a status names an expectation.
pub(crate) fn expected_number(expected: ExpectedRevision) -> i64 {
    match expected {
        ExpectedRevision::NoStream => -1,
        ExpectedRevision::Any => -2,
        ExpectedRevision::StreamExists => -4,
        ExpectedRevision::Exact(revision) => i64::try_from(revision).unwrap_or(i64::MAX),
    }
}

/// The expectation in the details of a status.
pub(crate) fn wrong_expected(
    expected: ExpectedRevision,
    current: Option<u64>,
) -> shared::WrongExpectedVersion {
    use shared::wrong_expected_version::{
        CurrentStreamRevisionOption as Current, ExpectedStreamPositionOption as Expected,
    };
    let current =
        current.map_or(Current::CurrentNoStream(Empty {}), Current::CurrentStreamRevision);
    let expected = match expected {
        ExpectedRevision::Any => Expected::ExpectedAny(Empty {}),
        ExpectedRevision::NoStream => Expected::ExpectedNoStream(Empty {}),
        ExpectedRevision::StreamExists => Expected::ExpectedStreamExists(Empty {}),
        ExpectedRevision::Exact(revision) => Expected::ExpectedStreamPosition(revision),
    };
    shared::WrongExpectedVersion {
        current_stream_revision_option: Some(current),
        expected_stream_position_option: Some(expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn identifier_of(bytes: &'static [u8]) -> Option<StreamIdentifier> {
        Some(StreamIdentifier { stream_name: Bytes::from_static(bytes) })
    }

    fn text_id(text: &str) -> shared::Uuid {
        shared::Uuid { value: Some(uuid::Value::String(text.to_owned())) }
    }

    #[test]
    fn names_of_no_stream_are_refused() {
        for bytes in [&b""[..], b"$all", b"\xff\xfe", &[b'x'; LONGEST_NAME + 1]] {
            let status = stream_name(identifier_of(bytes)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
        assert!(stream_name(None).is_err());
        assert_eq!(stream_name(identifier_of(b"order-1")).unwrap(), "order-1");
    }

    #[test]
    fn an_id_is_the_same_in_both_forms() {
        let id = Uuid::new_v4();
        assert_eq!(uuid(Some(&structured(id))).unwrap(), id);
        assert_eq!(uuid(Some(&text_id(&id.to_string()))).unwrap(), id);
    }

    #[test]
    fn an_id_that_is_missing_or_malformed_is_refused() {
        assert!(uuid(None).is_err());
        assert!(uuid(Some(&shared::Uuid { value: None })).is_err());
        assert!(uuid(Some(&text_id("no uuid"))).is_err());
    }

    #[test]
    fn an_event_without_type_or_content_type_is_refused_and_the_trailers_name_what_is_missing() {
        let proposed = shared::ProposedMessage {
            id: Some(structured(Uuid::new_v4())),
            metadata: BTreeMap::from([("type".to_owned(), "created".to_owned())]),
            ..Default::default()
        };
        let status = new_event(proposed).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert_eq!(
            status.metadata().get("exception").unwrap(),
            "missing-required-metadata-property"
        );
        assert_eq!(status.metadata().get("required-metadata-properties").unwrap(), "content-type");
    }

    #[test]
    fn a_deadline_that_has_passed_is_now_and_one_in_half_a_century_is_none() {
        assert_eq!(duration(-5, 0), Some(Duration::ZERO));
        assert_eq!(duration(i64::MIN, i32::MIN), Some(Duration::ZERO));
        assert_eq!(duration(1_700_000_000, 0), None);
        assert_eq!(duration(2, 500_000_000), Some(Duration::from_millis(2_500)));
        assert_eq!(until(&prost_types::Timestamp { seconds: 0, nanos: 0 }), Some(Duration::ZERO));
        assert_eq!(until(&prost_types::Timestamp { seconds: i64::MAX, nanos: i32::MAX }), None);
    }
}
