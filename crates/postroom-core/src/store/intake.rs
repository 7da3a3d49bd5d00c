//! Taking messages in.

use super::{StoreError, StoreErrorKind, StoreResult};
use crate::{MessageId, NewMessage};
use async_trait::async_trait;
use std::slice;

/// Whether an enqueue wrote a row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Enqueued {
    /// A new message with this id.
    New(MessageId),
    /// The same event for the same integration was there; this is the first one's id, and its
    /// content stays as it was.
    Duplicate(MessageId),
}

impl Enqueued {
    /// The message's id, new or not.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_id(self) -> MessageId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether a row was written.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// How far somebody who reads messages elsewhere has come, and how far it had come before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// Whose position it is: 1 to 120 characters.
    pub name: String,
    /// The position to store, at most [`POSITION_BYTES`] long. Only its owner knows what it means.
    pub position: String,
    /// The position that was read before; `None` when there was no checkpoint of this name.
    pub expected: Option<String>,
}

/// The most bytes of a checkpoint's position.
pub const POSITION_BYTES: usize = 8_192;

/// Taking messages in, for those who bring them from elsewhere, and for tools and tests.
/// Applications enqueue in their own transaction through the `postroom` crate instead.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Writes messages and moves a checkpoint in one transaction: all of it, or nothing. There is
    /// one answer per message, in their order. `seq` follows that order too.
    ///
    /// A message whose event, stream, integration and copy are there already, in the outbox or
    /// earlier in the batch, is a [`Enqueued::Duplicate`] of the first one. So a call whose answer
    /// was lost can be repeated.
    ///
    /// The checkpoint moves only from the position that its caller expects. An empty batch moves it
    /// alone.
    ///
    /// # Errors
    /// Nothing was written then.
    /// * [`StoreErrorKind::Refused`] when a message is invalid: the error says which, counted from
    ///   0, and why.
    /// * [`StoreErrorKind::Conflict`] when the checkpoint stands elsewhere: the error names it, the
    ///   position expected and the one found. Also when the transaction lost to a concurrent one,
    ///   as two that write the same events in different orders may. Read the checkpoint before
    ///   trying again.
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>>;

    /// The position of a checkpoint, if there is one of this name.
    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>>;

    /// Enqueues one message in a transaction of its own.
    async fn enqueue(&self, message: &NewMessage) -> StoreResult<Enqueued> {
        let answers = self.accept(slice::from_ref(message), None).await?;
        answers.into_iter().next().ok_or_else(|| {
            let context = "enqueueing: the store gave no answer for the message";
            StoreError::plain(StoreErrorKind::Refused, context)
        })
    }
}
