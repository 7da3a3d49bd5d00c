//! A message as the outbox holds it.

use crate::{MessageId, RawJson};
use chrono::{DateTime, Utc};

/// One message's immutable content, with the counters an attempt needs.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Message {
    /// The row's own id.
    pub id: MessageId,
    /// Orders rows; no commit order.
    pub seq: i64,
    /// The event id (`source_event_id`): what receivers deduplicate by.
    pub event_id: String,
    /// The aggregate or stream it came from (`source_stream_id`).
    pub stream_id: String,
    /// Where it goes, `adapter:channel` (`integration_type`).
    pub integration: String,
    /// What happened, e.g. `payment.completed.v1`.
    pub event_type: String,
    /// The body.
    pub payload: RawJson,
    /// Extra headers, a JSON object; trace context travels here.
    pub headers: Option<RawJson>,
    /// The tenant it belongs to.
    pub tenant_id: Option<String>,
    /// Who caused it.
    pub user_id: Option<String>,
    /// Ties it to a request across services.
    pub correlation_id: Option<String>,
    /// The event or command that caused it.
    pub causation_id: Option<String>,
    /// The module or service it came from.
    pub source: Option<String>,
    /// Messages with the same key stay in order on lanes that ask for it.
    pub ordering_key: Option<String>,
    /// The version of the payload's schema.
    pub schema_version: i32,
    /// Ordinal among several messages of one event to one integration.
    pub copy: i32,
    /// When it happened, where the producer said so.
    pub occurred_at: Option<DateTime<Utc>>,
    /// When it may be delivered.
    pub due_at: DateTime<Utc>,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Failed attempts allowed, unless the integration says otherwise.
    pub max_attempts: u32,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
}

impl Message {
    /// A message of which nothing else could be read. It can be settled, and its death announced.
    #[must_use]
    pub fn unread(seq: i64, id: MessageId, integration: String) -> Self {
        Self {
            id,
            seq,
            event_id: String::new(),
            stream_id: String::new(),
            integration,
            event_type: String::new(),
            payload: RawJson::trusted("null"),
            headers: None,
            tenant_id: None,
            user_id: None,
            correlation_id: None,
            causation_id: None,
            source: None,
            ordering_key: None,
            schema_version: 1,
            copy: 0,
            occurred_at: None,
            due_at: DateTime::UNIX_EPOCH,
            attempts: 0,
            max_attempts: 1,
            created_at: DateTime::UNIX_EPOCH,
        }
    }

    /// Roughly what it occupies in memory, for limits in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.payload.len() + self.headers.as_ref().map_or(0, RawJson::len)
    }
}

impl Record {
    /// How operations name it.
    #[must_use]
    pub fn key(&self) -> crate::Key {
        crate::Key { seq: self.message.seq, id: self.message.id.clone() }
    }
}

/// A message with its recorded state: one row of the view `core_outbox.messages`.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Record {
    /// The content.
    #[serde(flatten)]
    pub message: Message,
    /// Its status by name; a status nobody knows is shown as it stands.
    pub status: String,
    /// Since when it has been claimed.
    pub locked_at: Option<DateTime<Utc>>,
    /// The worker that claimed it.
    pub locked_by: Option<String>,
    /// When its recorded state last changed.
    pub updated_at: DateTime<Utc>,
    /// When it was acknowledged.
    pub sent_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}
