//! The log as those see it who use it.

use crate::appender::{Change, Request, Requests};
use crate::disk::{Disk, Folder, FolderError};
use crate::event::{NewEvent, ResolvedEvent};
use crate::expected::{AppendError, Appended, ExpectedRevision, ReadError};
use crate::filter::Filter;
use crate::index::{Index, IndexError, Key};
use crate::log::acknowledged;
use crate::log::record::{LARGEST, LONGEST_NAME, SMALLEST};
use crate::log::recovery::{self, RecoveryError};
use crate::metadata::METADATA_PREFIX;
use crate::reader::Reader;
use crate::threads::Threads;
use crate::upkeep::{Scavenged, Scavenger};
use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, oneshot, watch};

/// The stream in which persistent subscriptions keep their groups.
pub(crate) const GROUPS_STREAM: &str = "$persistentSubscriptionConfig";
/// What [`Settings::append_max`] may be at most: a record is read as a whole.
const APPEND_LARGEST: usize = LARGEST - (1 << 20);
/// How many events an append may have, however small they are.
const EVENTS_MAX: usize = 65_536;
/// How many times its limit an append may take with all that is around its events.
const COST_FACTOR: usize = 8;
const COST_MIN: usize = 1 << 20;
/// How many bytes of appends may wait in the queue.
const QUEUE_BYTES: usize = 128 << 20;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most bytes of one append: types, data and metadata of its events. At most 79 MiB.
    pub append_max: usize,
    /// When a segment is full and another begins.
    pub segment_size: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { append_max: 1 << 20, segment_size: 64 << 20 }
    }
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It is damaged, or cannot be read.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// Reading it failed after it was found to be whole.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its index cannot be made.
    #[error("the index of the log cannot be used")]
    Index(#[source] Box<dyn Error + Send + Sync>),
    /// It could not begin to work.
    #[error("starting the event log")]
    Start(#[source] io::Error),
}

/// Which way to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From older to newer.
    Forwards,
    /// From newer to older.
    Backwards,
}

/// What is known of a stream without reading it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamState {
    /// It has no event, or none that its metadata lets be seen (it was deleted).
    Missing,
    /// It has events.
    There {
        /// The first revision that may be read.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// It is tombstoned.
    Tombstoned,
}

/// Some events of a stream.
#[derive(Debug)]
pub struct StreamPage {
    /// The events, in the order asked for.
    pub events: Vec<ResolvedEvent>,
    /// The revision from which to read on, in the same direction; `None` at the stream's end (or
    /// its beginning, backwards). Whoever follows a stream goes on from `last + 1`.
    pub next: Option<u64>,
    /// The stream as it was when this was read.
    pub state: StreamState,
}

/// Some events of the whole log.
#[derive(Debug)]
pub struct AllPage {
    /// The events, in the order asked for; only those that the filter accepts.
    pub events: Vec<ResolvedEvent>,
    /// The position from which to read on: inclusive forwards, exclusive backwards.
    pub next: u64,
    /// The position of the last event that was looked at, whether the filter accepted it or not.
    pub last: Option<u64>,
    /// How many events were looked at.
    pub considered: usize,
    /// Whether there was nothing more in that direction.
    pub is_end: bool,
}

/// An event log in a folder. Clones are the same log; it is closed with [`EventLog::close`], or
/// when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct EventLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reader: Arc<Reader>,
    settings: Settings,
    scavenger: Scavenger,
    requests: RwLock<Option<Requests>>,
    /// For how many bytes of appends there is room in the queue, whoever they are from.
    room: Arc<Semaphore>,
    threads: Mutex<Option<Threads>>,
}

impl EventLog {
    /// Opens the log in a folder, which is made if it is not there. Reads and checks all of it, and
    /// so takes a while where it is large.
    ///
    /// # Errors
    /// When another process has it open, or it is damaged.
    pub fn open(folder: &Path, settings: Settings) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Folder::lock(folder)?), settings)
    }

    /// The same for a folder that must have a log.
    ///
    /// # Errors
    /// As [`EventLog::open`], and when there is none.
    pub fn open_existing(folder: &Path, settings: Settings) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(Folder::lock_existing(folder)?), settings)
    }

    /// The same on any disk.
    pub(crate) fn open_on(disk: Arc<dyn Disk>, mut settings: Settings) -> Result<Self, OpenError> {
        settings.append_max = settings.append_max.min(APPEND_LARGEST);
        let failed = |error: IndexError| OpenError::Index(error.into());
        let index = Arc::new(Index::open(&disk).map_err(failed)?);
        let checkpoint = index.checkpoint().map_err(failed)?;
        let acknowledged = checkpoint.max(acknowledged::known(&*disk));
        let log = Arc::new(recovery::recover(disk, acknowledged)?);
        index.catch_up(&log, checkpoint)?;
        let reader = Arc::new(Reader::new(log, Arc::clone(&index)));
        let (requests, threads) =
            Threads::start(&reader, settings.segment_size).map_err(OpenError::Start)?;
        let scavenger = Scavenger::default();
        let (requests, threads) = (RwLock::new(Some(requests)), Mutex::new(Some(threads)));
        let room = Arc::new(Semaphore::new(QUEUE_BYTES));
        let inner = Inner { reader, settings, scavenger, requests, room, threads };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How the log is kept.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn reader(&self) -> &Arc<Reader> {
        &self.inner.reader
    }

    /// Appends events to a stream, all or none, and returns once they are on disk. The same event
    /// ids again at the same place succeed again and append nothing. An append goes on when its
    /// future is dropped.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        events: Vec<NewEvent>,
    ) -> Result<Appended, AppendError> {
        self.submit(stream, expected, events).await?.await
    }

    /// The same in two steps, for those who have many appends under way. Once the append has its
    /// place in the log's queue, it comes before all that are submitted later; what is returned then
    /// waits for the disk.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn submit(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        events: Vec<NewEvent>,
    ) -> Result<Submitted, AppendError> {
        let max = self.inner.settings.append_max;
        if events.len() > EVENTS_MAX {
            let text = format!("an append has at most {EVENTS_MAX} events");
            return Err(AppendError::Invalid(text));
        }
        let mut bytes = 0_usize;
        for event in &events {
            if event.event_type.is_empty() || event.event_type.len() > LONGEST_NAME {
                let text = format!("the type of an event has 1 to {LONGEST_NAME} bytes");
                return Err(AppendError::Invalid(text));
            }
            bytes += event.event_type.len() + event.data.len() + event.metadata.len();
        }
        if bytes > max {
            return Err(AppendError::TooLarge { max });
        }
        // What it takes in the queue and on disk, where many small events share a long name.
        let cost = bytes + events.len() * (SMALLEST + stream.len());
        if cost > max.saturating_mul(COST_FACTOR).max(COST_MIN) {
            return Err(AppendError::TooLarge { max });
        }
        self.enqueue(stream, expected, Change::Append(events), cost).await
    }

    /// Deletes a stream so that it can be written to again, with revisions that go on.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn delete(
        &self,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<Appended, AppendError> {
        self.enqueue(stream, expected, Change::Delete, 0).await?.await
    }

    /// Deletes a stream for good.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn tombstone(
        &self,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<Appended, AppendError> {
        self.enqueue(stream, expected, Change::Tombstone, 0).await?.await
    }

    async fn enqueue(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        change: Change,
        cost: usize,
    ) -> Result<Submitted, AppendError> {
        check_name(stream, &change)?;
        let closed = || AppendError::Unavailable("the log was closed".to_owned());
        let requests = self.inner.requests.read().unwrap_or_else(PoisonError::into_inner).clone();
        let requests = requests.ok_or_else(closed)?;
        // First the bytes and then the place: both are given out in the order of asking.
        let bytes = u32::try_from(cost.min(QUEUE_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.inner.room).acquire_many_owned(bytes);
        let room = room.await.map_err(|_| closed())?;
        let place = requests.reserve_owned().await.map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        let stream = stream.to_owned();
        place.send(Request { stream, expected, change, reply, _room: room });
        Ok(Submitted(answer))
    }

    /// What is known of a stream.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub async fn stream_state(&self, stream: &str) -> Result<StreamState, ReadError> {
        let stream = stream.to_owned();
        self.read(move |reader| reader.state(&stream)).await
    }

    /// Reads at most `limit` events of a stream, from a revision on that is included. Backwards,
    /// `u64::MAX` is the end. With `resolve_links`, links are followed.
    ///
    /// # Errors
    /// See [`ReadError`]; a stream that is not there is no error.
    pub async fn read_stream(
        &self,
        stream: &str,
        from: u64,
        direction: Direction,
        limit: usize,
        resolve_links: bool,
    ) -> Result<StreamPage, ReadError> {
        let stream = stream.to_owned();
        self.read(move |reader| reader.read_stream(&stream, from, direction, limit, resolve_links))
            .await
    }

    /// Looks at no more than `limit` events of the whole log, from a position on that is included
    /// forwards and excluded backwards, where `u64::MAX` is the end.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read_all(
        &self,
        from: u64,
        direction: Direction,
        limit: usize,
        filter: Option<&Filter>,
        resolve_links: bool,
    ) -> Result<AllPage, ReadError> {
        let filter = filter.cloned();
        self.read(move |reader| {
            reader.read_all(from, direction, limit, filter.as_ref(), resolve_links)
        })
        .await
    }

    /// Where the next event will stand. The receiver changes whenever events have been appended.
    #[must_use]
    pub fn end(&self) -> watch::Receiver<u64> {
        self.inner.reader.log.watch_end()
    }

    /// Frees the space of events that nobody can read any more. Returns once it is done; a drop of
    /// the future does not end it.
    ///
    /// # Errors
    /// When the disk answers with an error; nothing is lost by that.
    pub async fn scavenge(&self) -> Result<Scavenged, ReadError> {
        let begun = self.inner.scavenger.begin();
        // So that what was appended lately is looked at, too.
        let rolled =
            async { self.enqueue("roll", ExpectedRevision::Any, Change::Roll, 0).await?.await };
        rolled.await.map_err(|error| ReadError::Io(io::Error::other(error)))?;
        let inner = Arc::clone(&self.inner);
        blocking(move || inner.scavenger.run(&inner.reader, begun)).await
    }

    /// Whether a scavenge is under way.
    #[must_use]
    pub fn is_scavenging(&self) -> bool {
        self.inner.scavenger.is_running()
    }

    /// Asks a scavenge that is under way to end after the segment that it is at.
    pub fn stop_scavenge(&self) {
        self.inner.scavenger.stop();
    }

    /// Finishes what is being written, and closes the log for all clones. The folder can be opened
    /// again then.
    pub async fn close(&self) {
        let inner = Arc::clone(&self.inner);
        // It only fails when the runtime ends, and then the drop closes.
        let _ = tokio::task::spawn_blocking(move || inner.close()).await;
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let reader = Arc::clone(&self.inner.reader);
        blocking(move || read(&reader)).await
    }
}

/// An append that has its place in the queue, and waits for the disk. It goes on when this is
/// dropped.
#[derive(Debug)]
pub struct Submitted(oneshot::Receiver<Result<Appended, AppendError>>);

impl Future for Submitted {
    type Output = Result<Appended, AppendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| {
            answer
                .unwrap_or_else(|_| Err(AppendError::Unavailable("the log was closed".to_owned())))
        })
    }
}

impl Inner {
    fn close(&self) {
        self.stop_taking();
        self.reader.log.close();
        if let Some(threads) = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take() {
            threads.join();
            self.scavenger.close();
            self.reader.index.close();
            self.reader.log.disk().release();
        }
    }

    fn stop_taking(&self) {
        self.requests.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs what waits for the disk where it holds up nobody else.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ReadError::Io(io::Error::other(error))),
    }
}

fn check_name(stream: &str, change: &Change) -> Result<(), AppendError> {
    let invalid = |text: String| Err(AppendError::Invalid(text));
    if stream.is_empty() || stream.len() > LONGEST_NAME {
        return invalid(format!("the name of a stream has 1 to {LONGEST_NAME} bytes"));
    }
    if stream == "$all" {
        return invalid("$all is the whole log, and no stream to write to".to_owned());
    }
    if Key::of(stream).is_computed() {
        return Err(AppendError::Computed(stream.to_owned()));
    }
    let is_metadata = stream.starts_with(METADATA_PREFIX);
    match change {
        Change::Delete | Change::Tombstone if stream == GROUPS_STREAM => {
            invalid(format!("{stream} has the groups of persistent subscriptions: delete those"))
        }
        Change::Delete | Change::Tombstone if is_metadata => {
            invalid(format!("{stream} goes with the stream that it describes"))
        }
        Change::Append(_) if stream == METADATA_PREFIX => {
            invalid(format!("{stream} describes no stream"))
        }
        Change::Append(_) | Change::Delete | Change::Tombstone | Change::Roll => Ok(()),
    }
}
