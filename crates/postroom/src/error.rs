//! Why a message could not be enqueued.

use postroom_core::MessageError;

/// Why a message could not be enqueued. The caller's transaction decides what happens next: after
/// [`EnqueueError::Database`], PostgreSQL accepts nothing but a rollback.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The message itself was refused; nothing was sent to the database.
    #[error("message refused: {0}")]
    Invalid(#[from] MessageError),
    /// The database did not take it.
    #[error("could not write to the outbox (is it migrated? `postroom migrate --database URL`)")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A unique index refused the message, yet no row with its event id, stream, integration and
    /// copy can be seen: an index the outbox does not know, or a row deleted in between.
    #[error(
        "refused as a duplicate, but the first message cannot be found: enqueue again, and look for unique indexes added to the outbox by hand"
    )]
    Vanished,
    /// The table was adopted and still has its old fence, and this event is there for another
    /// integration or copy. Nothing was written.
    #[error(
        "this event is already enqueued for another integration, and the old fence, a unique index on stream and event alone, lets one event reach one integration only: run `postroom migrate --replace-fence`"
    )]
    OldFence,
}

impl EnqueueError {
    /// Wraps a driver's error.
    #[cfg(any(
        feature = "sqlx-mysql",
        feature = "sqlx-postgres",
        feature = "sqlx-sqlite",
        feature = "tokio-postgres"
    ))]
    pub(crate) fn database(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Database(Box::new(error))
    }
}
