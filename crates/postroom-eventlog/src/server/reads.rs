//! How many reads may be open at once.

use futures_util::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// The reads of all connections: those that end, subscriptions, and consumers of persistent
/// subscriptions. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Reads {
    open: Arc<Semaphore>,
    max: usize,
}

/// A read that is open, until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRead {
    _permit: OwnedSemaphorePermit,
}

impl Reads {
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { open: Arc::new(Semaphore::new(max)), max }
    }

    /// Opens another one.
    ///
    /// # Errors
    /// When there are as many as there may be.
    pub(crate) fn open(&self) -> Result<OpenRead, Status> {
        match Arc::clone(&self.open).try_acquire_owned() {
            Ok(permit) => Ok(OpenRead { _permit: permit }),
            Err(_) => {
                let text = format!(
                    "the server has {} reads and subscriptions open, which is as many as it may \
                     have",
                    self.max
                );
                Err(Status::resource_exhausted(text))
            }
        }
    }
}

/// The messages of a read, which is open as long as this is there.
pub(crate) struct Counted<S> {
    messages: Pin<Box<S>>,
    _open: OpenRead,
}

impl<S> Counted<S> {
    pub(crate) fn new(messages: S, open: OpenRead) -> Self {
        Self { messages: Box::pin(messages), _open: open }
    }
}

impl<S: Stream> Stream for Counted<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.messages.as_mut().poll_next(cx)
    }
}
