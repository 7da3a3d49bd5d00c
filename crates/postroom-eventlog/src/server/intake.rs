//! How many bytes of appends the server takes in before the log has them.
//!
//! One call may collect a whole append, and there may be many calls. So all of them share a number
//! of bytes. What a client sends counts from the moment when it is read from the connection until
//! the log has given the append its place, or refused it. A call that finds no room is not read
//! from, and so its client cannot send.

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

/// How many bytes there may be.
const BYTES_MAX: usize = 256 << 20;
/// How long a call waits for room. Calls that have collected parts of appends and all wait for each
/// other would wait for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// The room that all calls share. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    room: Arc<Semaphore>,
    patience: Duration,
}

/// The bytes of a call that are read and not yet accounted for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received(Arc<Mutex<Room>>);

/// Room for bytes, which is free again when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

impl Intake {
    pub(crate) fn new() -> Self {
        Self::with(BYTES_MAX, PATIENCE)
    }

    fn with(bytes: usize, patience: Duration) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes)), patience }
    }

    /// A request's body, of which no more is read than there is room for; and what has been read.
    pub(crate) fn meter(&self, body: Body) -> (Body, Received) {
        let received = Received::default();
        let intake = self.clone();
        let metered = Metered { body, intake, received: received.clone(), waiting: None };
        (Body::new(metered), received)
    }

    async fn room(self, bytes: u32) -> Result<OwnedSemaphorePermit, Status> {
        match timeout(self.patience, self.room.acquire_many_owned(bytes)).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Status::resource_exhausted(
                "the server is taking in as many appends as it may; try again later",
            )),
        }
    }
}

impl Received {
    /// The room for everything that was read since the last time.
    pub(crate) fn take(&self) -> Room {
        std::mem::take(&mut *self.lock())
    }

    fn add(&self, permit: OwnedSemaphorePermit) {
        self.lock().add(Room(Some(permit)));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Adds more of it.
    pub(crate) fn add(&mut self, more: Self) {
        match (&mut self.0, more.0) {
            (Some(permit), Some(more)) => permit.merge(more),
            (own @ None, more) => *own = more,
            (Some(_), None) => {}
        }
    }

    /// Frees all but this many bytes.
    pub(crate) fn keep(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.0 {
            let excess = permit.num_permits().saturating_sub(bytes);
            drop(permit.split(excess));
        }
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Status>> + Send>>;

/// A body that waits for room.
struct Metered {
    body: Body,
    intake: Intake,
    received: Received,
    /// A frame that was read, and waits until there is room for it.
    waiting: Option<(Frame<Bytes>, Waiting)>,
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.waiting.is_none() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Ok(length @ 1..) = u32::try_from(length) else {
                return Poll::Ready(Some(Ok(frame)));
            };
            if let Ok(permit) = Arc::clone(&this.intake.room).try_acquire_many_owned(length) {
                this.received.add(permit);
                return Poll::Ready(Some(Ok(frame)));
            }
            let waiting = Box::pin(this.intake.clone().room(length));
            this.waiting = Some((frame, waiting));
        }
        let Some((_, waiting)) = &mut this.waiting else { return Poll::Pending };
        let permit = ready!(waiting.as_mut().poll(cx));
        let frame = this.waiting.take().map(|(frame, _)| frame);
        Poll::Ready(frame.map(|frame| {
            this.received.add(permit?);
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use http_body::Body as _;
    use std::future::poll_fn;

    /// A body of two frames.
    fn body() -> Body {
        let frames = ["12345", "67890"].map(|data| Ok::<_, Status>(Frame::data(Bytes::from(data))));
        Body::new(Frames(frames.into_iter().collect()))
    }

    struct Frames(std::collections::VecDeque<Result<Frame<Bytes>, Status>>);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    async fn frame(body: &mut Body) -> Option<Result<Frame<Bytes>, Status>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    #[tokio::test]
    async fn a_call_is_read_on_once_another_has_made_room() {
        let intake = Intake::with(12, Duration::from_secs(60));
        let (mut first, of_first) = intake.meter(body());
        let (mut second, of_second) = intake.meter(body());
        assert!(frame(&mut first).await.unwrap().is_ok());
        assert!(frame(&mut second).await.unwrap().is_ok());
        assert!(frame(&mut first).now_or_never().is_none());
        drop(of_second.take());
        assert!(frame(&mut first).await.unwrap().is_ok());
        assert!(frame(&mut first).await.is_none());
        let mut room = of_first.take();
        assert_eq!(intake.room.available_permits(), 2);
        room.keep(3);
        assert_eq!(intake.room.available_permits(), 9);
        drop(room);
        assert_eq!(intake.room.available_permits(), 12);
    }

    #[tokio::test]
    async fn calls_that_wait_for_each_other_do_not_wait_for_ever() {
        let intake = Intake::with(7, Duration::from_millis(10));
        let (mut first, _received) = intake.meter(body());
        assert!(frame(&mut first).await.unwrap().is_ok());
        let status = frame(&mut first).await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        drop(first);
    }
}
