//! Puts the messages of a batch call together to appends.

use super::batch::Echo;
use super::collected::{Collected, NotTaken, cost_max};
use super::{status, wire};
use crate::ExpectedRevision;
use crate::proto::google::rpc;
use crate::proto::shared::ProposedMessage;
use crate::proto::streams::batch_append_req::Options;
use crate::proto::streams::batch_append_req::options::{
    DeadlineOption, ExpectedStreamPosition as Asked,
};
use crate::proto::streams::batch_append_resp::Result as Outcome;
use crate::proto::streams::{BatchAppendReq, BatchAppendResp};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tonic::Status;
use uuid::Uuid;

/// How many appends of one call may have begun without having their last message.
const BEGUN_MAX: usize = 256;
/// How many times the cost of the largest append they may have together.
const BEGUN_COST_FACTOR: usize = 2;

/// The appends of a call that have begun.
#[derive(Debug)]
pub(crate) struct Assembly {
    append_max: usize,
    begun: HashMap<Uuid, Begun>,
    /// What all of them cost.
    cost: usize,
}

/// What a message leads to.
#[derive(Debug)]
pub(crate) enum Step {
    /// More messages of this append are to come.
    Continue,
    /// The append is complete.
    Append(Box<Assembled>),
    /// The append is refused.
    Refuse(Box<BatchAppendResp>),
}

/// A complete append.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) echo: Echo,
    pub(crate) stream: String,
    pub(crate) expected: ExpectedRevision,
    pub(crate) events: Collected,
    /// How long the client still waits; `None` for as long as it takes.
    pub(crate) deadline: Option<Duration>,
}

#[derive(Debug)]
enum Begun {
    Collecting {
        append: Box<Assembled>,
        since: Instant,
    },
    /// It has been refused; the rest of its messages is passed over.
    Refused,
}

impl Assembly {
    pub(crate) fn new(append_max: usize) -> Self {
        Self { append_max, begun: HashMap::new(), cost: 0 }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When the whole call is malformed.
    pub(crate) fn take(&mut self, request: BatchAppendReq) -> Result<Step, Status> {
        let id = wire::uuid(request.correlation_id.as_ref())?;
        let begun = match self.begun.remove(&id) {
            Some(begun) => begun,
            None if self.begun.len() >= BEGUN_MAX => {
                let text = format!("more than {BEGUN_MAX} appends were begun and not ended");
                return Err(Status::resource_exhausted(text));
            }
            None => match begin(&request, self.append_max) {
                Ok(append) => Begun::Collecting { append: Box::new(append), since: Instant::now() },
                Err(error) => {
                    let options = request.options.as_ref();
                    let echo = Echo {
                        correlation_id: request.correlation_id,
                        stream: options.and_then(|options| options.stream_identifier.clone()),
                        expected: options.and_then(|options| options.expected_stream_position),
                    };
                    return Ok(self.refuse(id, request.is_final, echo, error));
                }
            },
        };
        let Begun::Collecting { mut append, since } = begun else {
            if !request.is_final {
                self.begun.insert(id, Begun::Refused);
            }
            return Ok(Step::Continue);
        };
        self.cost -= append.events.cost();
        if let Err(error) = collect(&mut append, request.proposed_messages) {
            return Ok(self.refuse(id, request.is_final, append.echo, error));
        }
        if request.is_final {
            append.deadline = append.deadline.map(|whole| whole.saturating_sub(since.elapsed()));
            return Ok(Step::Append(append));
        }
        self.cost += append.events.cost();
        if self.cost > cost_max(self.append_max).saturating_mul(BEGUN_COST_FACTOR) {
            let text = "appends that were begun and not ended have too many bytes together";
            return Err(Status::resource_exhausted(text));
        }
        self.begun.insert(id, Begun::Collecting { append, since });
        Ok(Step::Continue)
    }

    /// What the appends cost that have begun and not ended.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    fn refuse(&mut self, id: Uuid, is_final: bool, echo: Echo, error: rpc::Status) -> Step {
        if !is_final {
            self.begun.insert(id, Begun::Refused);
        }
        Step::Refuse(Box::new(echo.answer(Outcome::Error(error))))
    }
}

/// Begins an append with its first message.
fn begin(request: &BatchAppendReq, append_max: usize) -> Result<Assembled, rpc::Status> {
    let options = request
        .options
        .as_ref()
        .ok_or_else(|| status::bad_request("options are missing".to_owned()))?;
    let stream = wire::stream_name(options.stream_identifier.clone()).map_err(bad_request)?;
    let expected = match options.expected_stream_position {
        Some(Asked::StreamPosition(revision)) => ExpectedRevision::Exact(revision),
        Some(Asked::NoStream(_)) => ExpectedRevision::NoStream,
        Some(Asked::Any(_)) => ExpectedRevision::Any,
        Some(Asked::StreamExists(_)) => ExpectedRevision::StreamExists,
        None => {
            let text = "expected_stream_position is missing";
            return Err(status::bad_request(text.to_owned()));
        }
    };
    let echo = Echo {
        correlation_id: request.correlation_id.clone(),
        stream: options.stream_identifier.clone(),
        expected: options.expected_stream_position,
    };
    let events = Collected::new(&stream, append_max);
    Ok(Assembled { echo, stream, expected, events, deadline: deadline(options) })
}

/// How long a client waits.
fn deadline(options: &Options) -> Option<Duration> {
    match options.deadline_option.as_ref()? {
        DeadlineOption::Deadline21100(time) => wire::until(time),
        // The client for Rust sends a time of day here, which is some 50 years.
        DeadlineOption::Deadline(duration) => wire::duration(duration.seconds, duration.nanos),
    }
}

/// Adds the events of a message.
fn collect(append: &mut Assembled, proposed: Vec<ProposedMessage>) -> Result<(), rpc::Status> {
    for proposed in proposed {
        append.events.take(proposed).map_err(|error| match error {
            NotTaken::Malformed(status) => bad_request(status),
            NotTaken::Refused(error) => status::in_batch(&append.stream, &error),
        })?;
    }
    Ok(())
}

fn bad_request(status: Status) -> rpc::Status {
    status::bad_request(status.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::shared::Empty;
    use crate::proto::streams::batch_append_resp;
    use bytes::Bytes;
    use std::collections::BTreeMap;

    const MAX: usize = 1_000;

    fn proposed(bytes: usize) -> ProposedMessage {
        let metadata = BTreeMap::from([
            ("type".to_owned(), "t".to_owned()),
            ("content-type".to_owned(), wire::JSON.to_owned()),
        ]);
        ProposedMessage {
            id: Some(wire::structured(Uuid::new_v4())),
            metadata,
            custom_metadata: Bytes::new(),
            data: Bytes::from(vec![b'x'; bytes]),
        }
    }

    fn options(stream: &str) -> Options {
        Options {
            stream_identifier: Some(wire::identifier(stream)),
            expected_stream_position: Some(Asked::Any(Empty {})),
            deadline_option: None,
        }
    }

    fn message(
        id: Uuid,
        options: Option<Options>,
        bytes: &[usize],
        is_final: bool,
    ) -> BatchAppendReq {
        BatchAppendReq {
            correlation_id: Some(wire::structured(id)),
            options,
            proposed_messages: bytes.iter().copied().map(proposed).collect(),
            is_final,
        }
    }

    fn refused(step: Step) -> rpc::Status {
        let Step::Refuse(answer) = step else { panic!("{step:?} is no refusal") };
        let Some(batch_append_resp::Result::Error(error)) = answer.result else { panic!() };
        error
    }

    #[test]
    fn messages_with_one_correlation_id_become_one_append_in_the_order_sent() {
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let mut assembly = Assembly::new(MAX);
        let first = assembly.take(message(a, Some(options("a")), &[1, 2], false)).unwrap();
        assert!(matches!(first, Step::Continue));
        let other = assembly.take(message(b, Some(options("b")), &[9], true)).unwrap();
        assert!(matches!(other, Step::Append(append) if append.stream == "b"));
        let Step::Append(append) = assembly.take(message(a, None, &[3], true)).unwrap() else {
            panic!();
        };
        let sizes: Vec<usize> =
            append.events.into_events().iter().map(|event| event.data.len()).collect();
        assert_eq!(sizes, [1, 2, 3]);
        assert_eq!(assembly.cost(), 0);
        assert!(assembly.begun.is_empty());
    }

    #[test]
    fn an_append_that_is_too_large_is_refused_once_and_the_call_goes_on() {
        let id = Uuid::new_v4();
        let mut assembly = Assembly::new(MAX);
        let error =
            refused(assembly.take(message(id, Some(options("a")), &[600, 600], false)).unwrap());
        assert!(error.details.unwrap().type_url.ends_with("MaximumAppendSizeExceeded"));
        assert!(matches!(assembly.take(message(id, None, &[1], true)).unwrap(), Step::Continue));
        let next = assembly.take(message(id, Some(options("a")), &[1], true)).unwrap();
        assert!(matches!(next, Step::Append(_)));
    }

    #[test]
    fn an_append_without_options_stream_or_expectation_is_refused() {
        let mut assembly = Assembly::new(MAX);
        let id = Uuid::new_v4();
        let without = Options { expected_stream_position: None, ..options("a") };
        for options in [None, Some(options("")), Some(options("$all")), Some(without)] {
            let error = refused(assembly.take(message(id, options, &[1], true)).unwrap());
            assert!(error.details.unwrap().type_url.ends_with("BadRequest"));
        }
    }

    #[test]
    fn a_call_without_a_correlation_id_ends() {
        let mut request = message(Uuid::new_v4(), Some(options("a")), &[1], true);
        request.correlation_id = None;
        let status = Assembly::new(MAX).take(request).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn appends_that_never_end_are_bounded() {
        let mut assembly = Assembly::new(MAX);
        let begin = |bytes| message(Uuid::new_v4(), Some(options("a")), &[bytes], false);
        let status = (0..=BEGUN_MAX).find_map(|_| assembly.take(begin(1)).err()).unwrap();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        let mut assembly = Assembly::new(1 << 20);
        let status = (0..20).find_map(|_| assembly.take(begin(900 << 10)).err()).unwrap();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    }

    #[test]
    fn a_deadline_in_the_past_leaves_no_time_and_half_a_century_is_no_deadline() {
        use prost_types::{Duration as Span, Timestamp};
        let past = DeadlineOption::Deadline21100(Timestamp { seconds: 5, nanos: 0 });
        let past = Options { deadline_option: Some(past), ..options("a") };
        assert_eq!(deadline(&past), Some(Duration::ZERO));
        let far = DeadlineOption::Deadline(Span { seconds: 1_800_000_000, nanos: 0 });
        let far = Options { deadline_option: Some(far), ..options("a") };
        assert_eq!(deadline(&far), None);
    }
}
