//! Appends of one request.

use super::collected::{Collected, NotTaken};
use super::intake::Received;
use super::{status, wire};
use crate::proto::shared::Empty;
use crate::proto::streams::append_req::Content;
use crate::proto::streams::append_resp::{self, WrongExpectedVersion, wrong_expected_version};
use crate::proto::streams::success::{CurrentRevisionOption, PositionOption};
use crate::proto::streams::{AppendReq, AppendResp, Success, Target, target};
use crate::{AppendError, Appended, EventLog, ExpectedRevision, Submitted};
use tonic::{Code, Status, Streaming};

/// The stream of a request and what it must be like.
pub(crate) fn target(target: Option<Target>) -> Result<(String, ExpectedRevision), Status> {
    use target::ExpectedStreamRevision as Wire;
    let target = target.ok_or_else(|| Status::invalid_argument("options are missing"))?;
    let stream = wire::stream_name(target.stream_identifier)?;
    let expected = match target.expected_stream_revision {
        Some(Wire::Revision(revision)) => ExpectedRevision::Exact(revision),
        Some(Wire::NoStream(_)) => ExpectedRevision::NoStream,
        Some(Wire::Any(_)) => ExpectedRevision::Any,
        Some(Wire::StreamExists(_)) => ExpectedRevision::StreamExists,
        None => return Err(Status::invalid_argument("expected_stream_revision is missing")),
    };
    Ok((stream, expected))
}

/// Reads the whole request, and appends its events.
pub(crate) async fn append(
    log: &EventLog,
    mut requests: Streaming<AppendReq>,
    received: Received,
) -> Result<AppendResp, Status> {
    let max = log.settings().append_max;
    let (stream, expected) = match next(&mut requests, max).await? {
        Some(Content::Options(options)) => target(Some(options))?,
        Some(Content::ProposedMessage(_)) => {
            return Err(Status::invalid_argument("the first message must have the options"));
        }
        None => return Err(Status::invalid_argument("options are missing")),
    };
    let mut events = Collected::new(&stream, max);
    while let Some(content) = next(&mut requests, max).await? {
        let Content::ProposedMessage(proposed) = content else {
            return Err(Status::invalid_argument("only the first message may have options"));
        };
        events.take(proposed).map_err(|error| match error {
            NotTaken::Malformed(status) => status,
            NotTaken::Refused(error) => status::of_append("Append", &stream, &error),
        })?;
    }
    let submitted = log.submit(&stream, expected, events.into_events()).await;
    // The log has them now.
    drop(received.take());
    let result = match appended(submitted).await {
        Ok(appended) => append_resp::Result::Success(success(appended)),
        Err(AppendError::WrongExpectedRevision { expected, current }) => {
            append_resp::Result::WrongExpectedVersion(wrong_expected(expected, current))
        }
        Err(error) => return Err(status::of_append("Append", &stream, &error)),
    };
    Ok(AppendResp { result: Some(result) })
}

async fn appended(submitted: Result<Submitted, AppendError>) -> Result<Appended, AppendError> {
    submitted?.await
}

/// What comes next in a request.
async fn next(requests: &mut Streaming<AppendReq>, max: usize) -> Result<Option<Content>, Status> {
    let message = requests.message().await.map_err(|status| of_request(status, max))?;
    match message {
        Some(AppendReq { content: Some(content) }) => Ok(Some(content)),
        Some(AppendReq { content: None }) => {
            Err(Status::invalid_argument("a message without content"))
        }
        None => Ok(None),
    }
}

/// What went wrong with reading a request. A message above the limit for decoding is one above the
/// limit for appends.
pub(crate) fn of_request(error: Status, max: usize) -> Status {
    if error.code() == Code::OutOfRange { status::too_large(max) } else { error }
}

/// What became of an append.
pub(crate) fn success(appended: Appended) -> Success {
    let revision = appended
        .revision
        .map_or(CurrentRevisionOption::NoStream(Empty {}), CurrentRevisionOption::CurrentRevision);
    let position = appended.position.map_or(PositionOption::NoPosition(Empty {}), |position| {
        PositionOption::Position(wire::position(position))
    });
    Success { current_revision_option: Some(revision), position_option: Some(position) }
}

/// The answer for a stream that is not as expected, in the fields of old clients and of new ones.
fn wrong_expected(expected: ExpectedRevision, current: Option<u64>) -> WrongExpectedVersion {
    use wrong_expected_version::{
        CurrentRevisionOption as Current, CurrentRevisionOption2060 as OldCurrent,
        ExpectedRevisionOption as Expected, ExpectedRevisionOption2060 as OldExpected,
    };
    let (current, old_current) = match current {
        Some(revision) => {
            (Current::CurrentRevision(revision), OldCurrent::CurrentRevision2060(revision))
        }
        None => (Current::CurrentNoStream(Empty {}), OldCurrent::NoStream2060(Empty {})),
    };
    let (expected, old_expected) = match expected {
        ExpectedRevision::Any => (Expected::ExpectedAny(Empty {}), OldExpected::Any2060(Empty {})),
        ExpectedRevision::StreamExists => {
            (Expected::ExpectedStreamExists(Empty {}), OldExpected::StreamExists2060(Empty {}))
        }
        // Old clients have no field for this one.
        ExpectedRevision::NoStream => {
            (Expected::ExpectedNoStream(Empty {}), OldExpected::Any2060(Empty {}))
        }
        ExpectedRevision::Exact(revision) => {
            (Expected::ExpectedRevision(revision), OldExpected::ExpectedRevision2060(revision))
        }
    };
    WrongExpectedVersion {
        current_revision_option_20_6_0: Some(old_current),
        expected_revision_option_20_6_0: Some(old_expected),
        current_revision_option: Some(current),
        expected_revision_option: Some(expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(stream: &str) -> Target {
        let stream_identifier = Some(wire::identifier(stream));
        let expected_stream_revision = Some(target::ExpectedStreamRevision::Any(Empty {}));
        Target { stream_identifier, expected_stream_revision }
    }

    #[test]
    fn a_target_needs_a_stream_and_an_expectation() {
        assert_eq!(target(Some(target_of("s"))).unwrap(), ("s".to_owned(), ExpectedRevision::Any));
        assert!(target(None).is_err());
        assert!(target(Some(target_of(""))).is_err());
        assert!(target(Some(target_of("$all"))).is_err());
        let without = Target { expected_stream_revision: None, ..target_of("s") };
        assert!(target(Some(without)).is_err());
    }

    #[test]
    fn every_oneof_of_an_answer_is_set() {
        let nothing = success(Appended { revision: None, position: None });
        assert!(matches!(
            nothing.current_revision_option,
            Some(CurrentRevisionOption::NoStream(_))
        ));
        assert!(matches!(nothing.position_option, Some(PositionOption::NoPosition(_))));
        let expectations = [
            ExpectedRevision::Any,
            ExpectedRevision::NoStream,
            ExpectedRevision::StreamExists,
            ExpectedRevision::Exact(3),
        ];
        for expected in expectations {
            for current in [None, Some(5)] {
                let wrong = wrong_expected(expected, current);
                assert!(wrong.current_revision_option_20_6_0.is_some());
                assert!(wrong.expected_revision_option_20_6_0.is_some());
                assert!(wrong.current_revision_option.is_some());
                assert!(wrong.expected_revision_option.is_some());
            }
        }
    }

    #[test]
    fn a_message_above_the_limit_is_an_append_above_the_limit() {
        let status = of_request(Status::out_of_range("too long"), 10);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.metadata().get("maximum-append-size").unwrap(), "10");
        assert_eq!(of_request(Status::cancelled("gone"), 10).code(), Code::Cancelled);
    }
}
