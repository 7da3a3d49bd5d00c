//! Many appends over one call.
//!
//! The messages of one append share a correlation id. As soon as its last message is there, each
//! append is given its place in the log's queue, and only then is the next message taken: appends
//! keep the order in which they end. Their way to the disk goes on meanwhile, and answers come as
//! they are done. That fills the log's group commits.

use super::append::{of_request, success};
use super::assembly::{Assembled, Assembly, Step};
use super::collected::cost_max;
use super::intake::{Received, Room};
use super::status;
use crate::proto::shared::{self, StreamIdentifier};
use crate::proto::streams::batch_append_req::options::ExpectedStreamPosition as Asked;
use crate::proto::streams::batch_append_resp::{ExpectedStreamPosition as Told, Result as Outcome};
use crate::proto::streams::{BatchAppendReq, BatchAppendResp};
use crate::{AppendError, Appended, EventLog, Submitted};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{Stream, stream};
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, Streaming};

/// The answers of a call.
pub(crate) type Answers = Pin<Box<dyn Stream<Item = Result<BatchAppendResp, Status>> + Send>>;
/// An append that waits for its place in the log's queue, or has been refused there.
type Submitting = Pin<Box<dyn Future<Output = Result<Placed, Box<BatchAppendResp>>> + Send>>;
/// An append that is under way: its answer, and what its events cost.
type InFlight = Pin<Box<dyn Future<Output = (BatchAppendResp, usize)> + Send>>;

/// How many appends of one call may be under way at once.
const IN_FLIGHT_MAX: usize = 512;

/// Serves one call.
pub(crate) fn batch_append(
    log: EventLog,
    requests: Streaming<BatchAppendReq>,
    received: Received,
) -> Answers {
    let append_max = log.settings().append_max;
    let call = Call {
        log,
        requests,
        received,
        room: Room::default(),
        assembly: Assembly::new(append_max),
        append_max,
        submitting: None,
        in_flight: FuturesUnordered::new(),
        in_flight_cost: 0,
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
    /// What was read of the call lately.
    received: Received,
    /// The room for what the log does not have yet.
    room: Room,
    assembly: Assembly,
    append_max: usize,
    submitting: Option<Submitting>,
    in_flight: FuturesUnordered<InFlight>,
    /// What all that is in flight costs.
    in_flight_cost: usize,
    /// Whether the client may still send.
    is_open: bool,
}

type Item = Option<(Result<BatchAppendResp, Status>, Option<Call>)>;

impl Call {
    /// The next answer, and the call unless it has ended.
    async fn next(mut self) -> Item {
        loop {
            if !self.is_open && self.submitting.is_none() && self.in_flight.is_empty() {
                return None;
            }
            let may_read = self.is_open
                && self.submitting.is_none()
                && self.in_flight.len() < IN_FLIGHT_MAX
                && self.in_flight_cost < cost_max(self.append_max);
            tokio::select! {
                Some((answer, cost)) = self.in_flight.next() => {
                    self.in_flight_cost -= cost;
                    return self.give(answer);
                }
                submitted = submitted(&mut self.submitting) => {
                    self.room.keep(self.assembly.cost());
                    match submitted {
                        Ok(placed) => {
                            self.in_flight_cost += placed.cost;
                            self.in_flight.push(Box::pin(placed.answer()));
                        }
                        Err(answer) => return self.give(*answer),
                    }
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

    /// Gives an answer. A log that cannot write ends the call: clients know no answer that tells
    /// them so, and take what they are not told as a reason to try again.
    fn give(self, answer: BatchAppendResp) -> Item {
        match &answer.result {
            Some(Outcome::Error(error)) if error.code == Code::Unavailable as i32 => {
                Some((Err(Status::unavailable(error.message.clone())), None))
            }
            Some(_) | None => Some((Ok(answer), Some(self))),
        }
    }

    /// Takes a message, which may have its answer at once.
    fn accept(&mut self, request: BatchAppendReq) -> Result<Option<BatchAppendResp>, Status> {
        self.room.add(self.received.take());
        match self.assembly.take(request)? {
            Step::Append(append) => {
                self.submitting = Some(Box::pin(submit(self.log.clone(), *append)));
                Ok(None)
            }
            Step::Continue => {
                self.room.keep(self.assembly.cost());
                Ok(None)
            }
            Step::Refuse(answer) => {
                self.room.keep(self.assembly.cost());
                Ok(Some(*answer))
            }
        }
    }
}

/// Waits until the append has its place. Waits for ever where there is none.
async fn submitted(submitting: &mut Option<Submitting>) -> Result<Placed, Box<BatchAppendResp>> {
    let Some(append) = submitting else { return pending().await };
    let submitted = append.await;
    *submitting = None;
    submitted
}

/// Gives an append its place in the log's queue.
async fn submit(log: EventLog, append: Assembled) -> Result<Placed, Box<BatchAppendResp>> {
    let Assembled { echo, stream, expected, events, deadline } = append;
    let cost = events.cost();
    let submitted = match deadline {
        // The client has given up already.
        Some(Duration::ZERO) => None,
        Some(_) | None => {
            let deadline = deadline.map(|left| Instant::now() + left);
            let submitting = log.submit(&stream, expected, events.into_events());
            by(deadline, submitting).await.map(|submitted| (submitted, deadline))
        }
    };
    match submitted {
        Some((Ok(submitted), deadline)) => Ok(Placed { echo, stream, submitted, deadline, cost }),
        Some((Err(error), _)) => Err(Box::new(echo.answer(outcome(&stream, Some(Err(error)))))),
        None => Err(Box::new(echo.answer(outcome(&stream, None)))),
    }
}

/// An append that has its place in the log's queue.
struct Placed {
    echo: Echo,
    stream: String,
    submitted: Submitted,
    /// How long the client waits.
    deadline: Option<Instant>,
    cost: usize,
}

impl Placed {
    /// Its answer, once it is on disk.
    async fn answer(self) -> (BatchAppendResp, usize) {
        let result = by(self.deadline, self.submitted).await;
        (self.echo.answer(outcome(&self.stream, result)), self.cost)
    }
}

/// What work gives by then; `None` where it took too long.
async fn by<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.ok(),
        None => Some(work.await),
    }
}

/// What an answer tells of an append; `None` where it took too long.
fn outcome(stream: &str, result: Option<Result<Appended, AppendError>>) -> Outcome {
    match result {
        Some(Ok(appended)) => Outcome::Success(success(appended)),
        Some(Err(error)) => Outcome::Error(status::in_batch(stream, &error)),
        None => Outcome::Error(status::timed_out()),
    }
}
