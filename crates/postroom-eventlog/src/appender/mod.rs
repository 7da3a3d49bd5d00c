//! The one thread that appends. What was asked for while it synced goes to disk together.

mod plan;

use crate::event::{NewEvent, RecordedEvent};
use crate::expected::{AppendError, Appended, ExpectedRevision};
use crate::log::GrowError;
use crate::log::acknowledged::Acknowledged;
use crate::log::segment::{Form, HEADER, Segment};
use crate::reader::Reader;
use bytes::Bytes;
use plan::Plan;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// How many requests wait at most; whoever asks then waits before it is one of them.
const QUEUE: usize = 1_024;
/// How much is written and synced at once.
const GROUP_REQUESTS: usize = 1_024;
const GROUP_BYTES: usize = 4 << 20;
/// How often a disk that goes on failing is worth a line in the log.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What became of a request.
type Answer = Result<Appended, AppendError>;

/// What is asked of the thread.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) stream: String,
    pub(crate) expected: ExpectedRevision,
    pub(crate) change: Change,
    pub(crate) reply: oneshot::Sender<Answer>,
    /// Its share of the queue, given back with it.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// What a request changes.
#[derive(Debug)]
pub(crate) enum Change {
    Append(Vec<NewEvent>),
    Delete,
    Tombstone,
    /// Begins a new segment, so that the one before can be scavenged.
    Roll,
}

/// Where requests go.
pub(crate) type Requests = mpsc::Sender<Request>;

/// Starts the thread. It ends when all senders are gone. `flush` is told when the index has enough
/// to write to its table.
pub(crate) fn start(
    reader: Arc<Reader>,
    segment_size: u64,
    flush: std_mpsc::SyncSender<()>,
) -> io::Result<(Requests, std::thread::JoinHandle<()>)> {
    let (sender, requests) = mpsc::channel(QUEUE);
    let appender = Appender::new(reader, segment_size, flush)?;
    let thread = std::thread::Builder::new()
        .name("eventlog-append".to_owned())
        .spawn(move || appender.run(requests))?;
    Ok((sender, thread))
}

struct Appender {
    reader: Arc<Reader>,
    plan: Plan,
    segment: Arc<Segment>,
    segment_size: u64,
    flush: std_mpsc::SyncSender<()>,
    acknowledged: Acknowledged,
    /// Why nothing can be written any more until the log is opened again.
    broken: Option<String>,
    /// When an error was logged last: each append fails while a disk is full.
    told: Option<Instant>,
}

impl Appender {
    fn new(
        reader: Arc<Reader>,
        segment_size: u64,
        flush: std_mpsc::SyncSender<()>,
    ) -> io::Result<Self> {
        let end = reader.log.end();
        let last = reader.log.segments().last().cloned();
        let segment = match last {
            Some(last) if last.form == Form::Whole => last,
            // A segment that was compacted takes no more.
            Some(_) | None => reader.log.grow(end).map_err(|error| match error {
                GrowError::Failed(error) | GrowError::Unclear(error) => error,
            })?,
        };
        let plan = Plan::new(Arc::clone(&reader), segment.salt)?;
        let acknowledged = Acknowledged::open(reader.log.disk())?;
        let (broken, told) = (None, None);
        Ok(Self { reader, plan, segment, segment_size, flush, acknowledged, broken, told })
    }

    fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let mut group = Group::default();
            let mut next = Some(first);
            while let Some(request) = next {
                if self.plan.must_wait_for_group(&request) && !group.answers.is_empty() {
                    self.finish(std::mem::take(&mut group));
                }
                self.add(request, &mut group);
                let is_full =
                    group.answers.len() >= GROUP_REQUESTS || self.plan.bytes() >= GROUP_BYTES;
                next = if is_full { None } else { requests.try_recv().ok() };
            }
            self.finish(group);
        }
    }

    fn add(&mut self, request: Request, group: &mut Group) {
        // Its bytes are in the plan from now on, which has a limit of its own.
        let Request { stream, expected, change, reply, _room } = request;
        if let Some(broken) = &self.broken {
            let _ = reply.send(Err(AppendError::Unavailable(broken.clone())));
            return;
        }
        if group.answers.is_empty() {
            if let Err(reason) = self.reader.index.wait_for_room() {
                let _ = reply.send(Err(AppendError::Unavailable(reason)));
                return;
            }
            if let Err(error) = self.make_room(matches!(change, Change::Roll)) {
                let reason = match error {
                    GrowError::Failed(error) => format!("making a new segment: {error}"),
                    GrowError::Unclear(error) => {
                        let reason = format!(
                            "making a new segment: {error}; the server must be started again"
                        );
                        self.broken = Some(reason.clone());
                        reason
                    }
                };
                self.tell(&reason);
                let _ = reply.send(Err(AppendError::Unavailable(reason)));
                return;
            }
            self.plan.begin(self.reader.log.end());
        }
        let planned = self.plan.add(&stream, expected, &change);
        group.answers.push((reply, planned));
    }

    /// Begins a new segment where the last one is full, or where it is asked for.
    fn make_room(&mut self, is_wanted: bool) -> Result<(), GrowError> {
        let end = self.reader.log.end();
        let size = end - self.segment.base;
        let is_empty = size <= HEADER as u64;
        if size >= self.segment_size || (is_wanted && !is_empty) {
            self.segment = self.reader.log.grow(end)?;
        }
        Ok(())
    }

    /// Writes and syncs what was planned, and answers.
    fn finish(&mut self, group: Group) {
        let Planned { bytes, events, failed } = self.plan.take();
        let failed = failed.or_else(|| (!bytes.is_empty()).then(|| self.write(&bytes).err())?);
        if let Some(reason) = &failed {
            self.tell(reason);
            self.plan.forget();
        } else if let Some(last) = events.last() {
            let end = last.head().end();
            self.acknowledged.note(end);
            self.reader.log.advance(end);
            self.reader.index.insert(events.into_iter(), end);
            self.reader.log.publish(end);
            if self.reader.index.wants_flush() {
                // One that is full has been told already.
                let _ = self.flush.try_send(());
            }
        }
        for (reply, planned) in group.answers {
            // Whatever was answered may rest on what was to be written.
            let answer = match &failed {
                Some(reason) => Err(AppendError::Unavailable(reason.clone())),
                None => planned,
            };
            // Nobody listens any more where the caller has given up; what is written stays.
            let _ = reply.send(answer);
        }
    }

    fn tell(&mut self, reason: &str) {
        if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            tracing::error!(reason, "the event log cannot write");
            self.told = Some(Instant::now());
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let offset = self.reader.log.end() - self.segment.base;
        if let Err(error) = self.segment.file.write_at(offset, bytes) {
            // What was written in part must not be in the way of the next try.
            if let Err(error) = self.segment.file.set_len(offset) {
                self.broken = Some(format!("cutting a write that had failed: {error}"));
            }
            return Err(format!("writing {}: {error}", self.segment.name()));
        }
        self.segment.file.sync().map_err(|error| {
            // The system may have dropped what it could not write: nobody knows what the disk has.
            let reason = format!(
                "syncing {}: {error}; the server must be started again",
                self.segment.name()
            );
            self.broken = Some(reason.clone());
            reason
        })
    }
}

/// What was answered to requests that go to disk together, if that succeeds.
#[derive(Default)]
struct Group {
    answers: Vec<(oneshot::Sender<Answer>, Answer)>,
}

pub(crate) fn unavailable(doing: &str, error: &dyn std::fmt::Display) -> AppendError {
    AppendError::Unavailable(format!("{doing}: {error}"))
}

/// The records of a group.
struct Planned {
    bytes: Bytes,
    events: Vec<RecordedEvent>,
    /// Why the group cannot be written as a whole.
    failed: Option<String>,
}
