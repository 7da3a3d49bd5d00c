//! Checks a message, then writes it through the caller's transaction.

use crate::driver::OutboxTransaction;
use crate::{EnqueueError, trace};
use postroom_core::{Enqueued, Limits, NewMessage};

/// Enqueues one message in the caller's transaction, with the default [`Limits`].
///
/// The message exists once the transaction commits, and never if it rolls back. A second message
/// with the same event id, stream, integration and copy is [`Enqueued::Duplicate`].
///
/// # Errors
/// [`EnqueueError::Invalid`] before anything is written, [`EnqueueError::Database`] otherwise.
pub async fn enqueue<T: OutboxTransaction + ?Sized>(
    tx: &mut T,
    message: NewMessage,
) -> Result<Enqueued, EnqueueError> {
    Outbox::default().enqueue(tx, message).await
}

/// Enqueues several messages; the answers are in their order. See [`enqueue`].
///
/// They are written in the order of the fence, since two transactions that insert the same
/// events in different orders would deadlock.
///
/// # Errors
/// As for [`enqueue`]. All are checked before the first is written.
pub async fn enqueue_all<T: OutboxTransaction + ?Sized>(
    tx: &mut T,
    messages: Vec<NewMessage>,
) -> Result<Vec<Enqueued>, EnqueueError> {
    Outbox::default().enqueue_all(tx, messages).await
}

/// Enqueues with limits of the application's choice, or into a table that was there before.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    limits: Limits,
    /// Another table than Postroom's own.
    table: Option<String>,
}

impl Outbox {
    /// An outbox that accepts what these limits allow. The relay's `payload_limit` must allow
    /// it too.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, table: None }
    }

    /// The outbox of a table that was there before named as in its layout: what is enqueued becomes a
    /// row of that table, as the layout's `insert` writes it. The id of the answer is the row's key.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlx-postgres")]
    /// # async fn start_run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use postroom::{NewMessage, Outbox};
    ///
    /// let outbox = Outbox::of_table("outbox_events");
    /// let mut tx = pool.begin().await?;
    /// outbox.enqueue(&mut tx, NewMessage::new("kafka:runs", "run.started")
    ///     .stream("0198c1f0-0000-7000-8000-0000000000aa")
    ///     .json(&serde_json::json!({ "step": 1 }))).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn of_table(table: &str) -> Self {
        Self { limits: Limits::default(), table: Some(table.to_owned()) }
    }

    /// See [`enqueue`].
    ///
    /// # Errors
    /// As for [`enqueue`].
    pub async fn enqueue<T: OutboxTransaction + ?Sized>(
        &self,
        tx: &mut T,
        message: NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        let message = self.checked(message)?;
        self.insert(tx, &message).await
    }

    /// See [`enqueue_all`].
    ///
    /// # Errors
    /// As for [`enqueue_all`].
    pub async fn enqueue_all<T: OutboxTransaction + ?Sized>(
        &self,
        tx: &mut T,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut checked = messages
            .into_iter()
            .map(|message| self.checked(message))
            .enumerate()
            .map(|(place, message)| message.map(|message| (place, message)))
            .collect::<Result<Vec<_>, _>>()?;
        checked.sort_by(|(_, a), (_, b)| fence(a).cmp(&fence(b)));
        let mut answers = Vec::with_capacity(checked.len());
        for (place, message) in &checked {
            answers.push((*place, self.insert(tx, message).await?));
        }
        answers.sort_unstable_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, enqueued)| enqueued).collect())
    }

    async fn insert<T: OutboxTransaction + ?Sized>(
        &self,
        tx: &mut T,
        message: &NewMessage,
    ) -> Result<Enqueued, EnqueueError> {
        match &self.table {
            None => tx.insert(message).await,
            Some(table) => tx.insert_row(table, message).await,
        }
    }

    fn checked(&self, message: NewMessage) -> Result<NewMessage, EnqueueError> {
        let message = trace::capture(message)?;
        message.validate(&self.limits)?;
        Ok(message)
    }
}

fn fence(message: &NewMessage) -> (&str, &str, &str, i32) {
    (&message.event_id, message.stream_id(), &message.integration, message.copy)
}
