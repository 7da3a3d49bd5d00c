//! What a consumer holds: its messages, and its presence in the group.

use super::held::Hold;
use crate::event::ResolvedEvent;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::sync::{Notify, mpsc, oneshot};

/// Who a consumer is, as far as the server knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    /// Its address.
    pub(super) from: String,
    /// Its user.
    pub(super) user: String,
    /// What it calls its connection.
    pub(super) connection: String,
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The event.
    pub(super) event: ResolvedEvent,
    /// How often it has been delivered before.
    pub(super) retries: u32,
    /// What it takes of the memory of all groups.
    pub(super) _hold: Option<Arc<Hold>>,
}

/// Why the server ended a subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// The group was deleted or changed, or its consumer asked for the end.
    Dropped,
    /// The server stops.
    Unavailable,
    /// The group cannot go on.
    Failed(String),
    /// The consumer sent a malformed message.
    Invalid(String),
}

/// A consumer's messages, and how its subscription ended.
#[derive(Debug)]
pub(super) struct Deliveries {
    pub(super) receiver: mpsc::Receiver<Delivery>,
    pub(super) ended: Arc<OnceLock<Ended>>,
    /// Wakes the group once there is room again.
    pub(super) attention: Arc<Notify>,
    /// Set while the group waits for its consumer to read.
    pub(super) is_behind: Arc<AtomicBool>,
    /// Dropped with this: whoever waits on the other end learns that nobody takes messages.
    pub(super) _open: oneshot::Sender<()>,
}

impl Deliveries {
    /// The next message, or why there is none any more. After the end, it says the end again.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Delivery, Ended>> {
        let was_full = self.receiver.capacity() == 0;
        match self.receiver.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(delivery)) => {
                // Either the group sees that a message was taken, or this sees that it waits.
                fence(Ordering::SeqCst);
                if was_full || self.is_behind.load(Ordering::Relaxed) {
                    self.attention.notify_one();
                }
                Poll::Ready(Ok(delivery))
            }
            // A group that died says nothing; its consumers may try again.
            Poll::Ready(None) => {
                Poll::Ready(Err(self.ended.get().cloned().unwrap_or(Ended::Unavailable)))
            }
        }
    }
}

/// A consumer's presence in its group. When it is dropped, its messages go to others.
#[derive(Debug)]
pub(super) struct Presence {
    pub(super) is_gone: Arc<AtomicBool>,
    pub(super) attention: Arc<Notify>,
    /// Ends once nobody takes messages any more.
    pub(super) closed: oneshot::Receiver<()>,
}

impl Presence {
    /// Waits until nobody takes messages any more. Safe to cancel; to be called once.
    pub(super) async fn closed(&mut self) {
        let _ = Pin::new(&mut self.closed).await;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
        self.attention.notify_one();
    }
}
