//! Many appends over one call.
//!
//! The messages of one append share a correlation id. Each append is handed to the log as soon as
//! its last message is there, in the order in which they end, and while earlier ones are still on
//! their way to the disk; answers come as the appends are done. That fills the log's group commits.

use super::append::{of_request, success};
use super::assembly::{Assembled, Assembly, Step};
use super::status;
use crate::proto::shared::{self, StreamIdentifier};
use crate::proto::streams::batch_append_req::options::ExpectedStreamPosition as Asked;
use crate::proto::streams::batch_append_resp::{ExpectedStreamPosition as Told, Result as Outcome};
use crate::proto::streams::{BatchAppendReq, BatchAppendResp};
use crate::{AppendError, Appended, EventLog};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{FutureExt as _, Stream, stream};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Status, Streaming};

/// The answers of a call.
pub(crate) type Answers = Pin<Box<dyn Stream<Item = Result<BatchAppendResp, Status>> + Send>>;
/// An append that is under way: its answer, and the bytes of its events.
type InFlight = Pin<Box<dyn Future<Output = (BatchAppendResp, usize)> + Send>>;

/// How many appends of one call may be under way at once.
const IN_FLIGHT_MAX: usize = 512;
/// How many times the size of the largest append they may have together.
const IN_FLIGHT_SIZE_FACTOR: usize = 8;

/// Serves one call.
pub(crate) fn batch_append(log: EventLog, requests: Streaming<BatchAppendReq>) -> Answers {
    let append_max = log.settings().append_max;
    let call = Call {
        log,
        requests,
        assembly: Assembly::new(append_max),
        append_max,
        in_flight: FuturesUnordered::new(),
        in_flight_size: 0,
        is_open: true,
    };
    Box::pin(stream::unfold(Some(call), |call| async { call?.next().await }))
}

/// What an answer repeats of its request.
#[derive(Clone, Debug)]
pub(crate) struct Echo {
    pub(crate) correlation_id: Option<shared::Uuid>,
    pub(crate) stream: Option<StreamIdentifier>,
    pub(crate) expected: Option<Asked>,
}

impl Echo {
    /// The answer to an append.
    pub(crate) fn answer(self, result: Outcome) -> BatchAppendResp {
        let expected = self.expected.map(|expected| match expected {
            Asked::StreamPosition(revision) => Told::StreamPosition(revision),
            Asked::NoStream(empty) => Told::NoStream(empty),
            Asked::Any(empty) => Told::Any(empty),
            Asked::StreamExists(empty) => Told::StreamExists(empty),
        });
        BatchAppendResp {
            correlation_id: self.correlation_id,
            result: Some(result),
            // Clients expect it even where the request had none.
            stream_identifier: Some(self.stream.unwrap_or_default()),
            expected_stream_position: expected,
        }
    }
}

struct Call {
    log: EventLog,
    requests: Streaming<BatchAppendReq>,
    assembly: Assembly,
    append_max: usize,
    in_flight: FuturesUnordered<InFlight>,
    /// The bytes of all that is in flight.
    in_flight_size: usize,
    /// Whether the client may still send.
    is_open: bool,
}

type Item = Option<(Result<BatchAppendResp, Status>, Option<Call>)>;

impl Call {
    /// The next answer, and the call unless it has ended.
    async fn next(mut self) -> Item {
        loop {
            if !self.is_open && self.in_flight.is_empty() {
                return None;
            }
            let may_read = self.is_open
                && self.in_flight.len() < IN_FLIGHT_MAX
                && self.in_flight_size
                    < self.append_max.saturating_mul(IN_FLIGHT_SIZE_FACTOR).max(1);
            tokio::select! {
                Some((answer, size)) = self.in_flight.next() => {
                    self.in_flight_size -= size;
                    return Some((Ok(answer), Some(self)));
                }
                request = self.requests.message(), if may_read => match request {
                    Ok(Some(request)) => match self.accept(request) {
                        Ok(Some(answer)) => return Some((Ok(answer), Some(self))),
                        Ok(None) => {}
                        Err(status) => return Some((Err(status), None)),
                    },
                    Ok(None) => self.is_open = false,
                    Err(error) => {
                        return Some((Err(of_request(error, self.append_max)), None));
                    }
                },
            }
        }
    }

    /// Takes a message, which may have its answer at once.
    fn accept(&mut self, request: BatchAppendReq) -> Result<Option<BatchAppendResp>, Status> {
        let append = match self.assembly.take(request)? {
            Step::Continue => return Ok(None),
            Step::Refuse(answer) => return Ok(Some(*answer)),
            Step::Append(append) => append,
        };
        let size = append.size;
        let mut append: InFlight = Box::pin(run(self.log.clone(), *append));
        // It takes its place in the log's queue now, so that appends keep the order of the call.
        match (&mut append).now_or_never() {
            Some((answer, _)) => Ok(Some(answer)),
            None => {
                self.in_flight_size += size;
                self.in_flight.push(append);
                Ok(None)
            }
        }
    }
}

/// Makes one append, and gives its answer.
async fn run(log: EventLog, append: Assembled) -> (BatchAppendResp, usize) {
    let Assembled { echo, stream, expected, events, size, deadline } = append;
    let appending = log.append(&stream, expected, events);
    let result = match deadline {
        Some(Duration::ZERO) => None,
        Some(deadline) => timeout(deadline, appending).await.ok(),
        None => Some(appending.await),
    };
    (echo.answer(outcome(&stream, result)), size)
}

/// What an answer tells of an append; `None` where it took too long.
fn outcome(stream: &str, result: Option<Result<Appended, AppendError>>) -> Outcome {
    match result {
        Some(Ok(appended)) => Outcome::Success(success(appended)),
        Some(Err(error)) => Outcome::Error(status::in_batch(stream, &error)),
        None => Outcome::Error(status::timed_out()),
    }
}
