//! What an application enqueues, and what is refused before anything is written.

use crate::{JsonFault, RawJson};
use chrono::{DateTime, Utc};
use std::fmt;
use uuid::Uuid;

/// A message to enqueue. Build it with [`NewMessage::new`] and the methods that follow; what is
/// not set takes the outbox's defaults.
///
/// ```
/// use postroom_core::NewMessage;
/// let message = NewMessage::new("kafka:payments", "payment.completed.v1")
///     .stream("payment-42")
///     .json(&serde_json::json!({ "paymentId": 42 }));
/// assert!(message.validate(&Default::default()).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub(crate) payload: Result<RawJson, JsonFault>,
    pub(crate) headers: Option<Result<RawJson, JsonFault>>,
    /// Where it goes.
    pub integration: String,
    /// What happened.
    pub event_type: String,
    /// The event id; a UUIDv7 unless set.
    pub event_id: String,
    /// The aggregate; the event id unless set.
    pub stream_id: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// Who caused it.
    pub user_id: Option<String>,
    /// The correlation id.
    pub correlation_id: Option<String>,
    /// The causation id.
    pub causation_id: Option<String>,
    /// The originating module or service.
    pub source: Option<String>,
    /// The ordering key.
    pub ordering_key: Option<String>,
    /// The version of the payload's schema.
    pub schema_version: i32,
    /// Ordinal among several messages of one event to one integration.
    pub copy: i32,
    /// When it happened.
    pub occurred_at: Option<DateTime<Utc>>,
    /// When it may be delivered; at once unless set.
    pub due_at: Option<DateTime<Utc>>,
    /// Failed attempts allowed.
    pub max_attempts: i32,
}

/// Bounds on what may be enqueued.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The most bytes of payload.
    pub payload_bytes: usize,
    /// The most bytes of headers.
    pub headers_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: 256 * 1024, headers_bytes: 64 * 1024 }
    }
}

/// A field of a message, by its column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Field {
    /// `source_event_id`
    EventId,
    /// `source_stream_id`
    StreamId,
    /// `integration_type`
    Integration,
    /// `event_type`
    EventType,
    /// `payload`
    Payload,
    /// `headers`
    Headers,
    /// `tenant_id`
    TenantId,
    /// `user_id`
    UserId,
    /// `correlation_id`
    CorrelationId,
    /// `causation_id`
    CausationId,
    /// `source`
    Source,
    /// `ordering_key`
    OrderingKey,
    /// `max_attempts`
    MaxAttempts,
    /// `schema_version`
    SchemaVersion,
    /// `copy`
    Copy,
    /// The header `traceparent`
    Traceparent,
}

impl Field {
    /// The column's name.
    #[must_use]
    pub fn column(self) -> &'static str {
        match self {
            Self::EventId => "source_event_id",
            Self::StreamId => "source_stream_id",
            Self::Integration => "integration_type",
            Self::EventType => "event_type",
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::TenantId => "tenant_id",
            Self::UserId => "user_id",
            Self::CorrelationId => "correlation_id",
            Self::CausationId => "causation_id",
            Self::Source => "source",
            Self::OrderingKey => "ordering_key",
            Self::MaxAttempts => "max_attempts",
            Self::SchemaVersion => "schema_version",
            Self::Copy => "copy",
            Self::Traceparent => "traceparent",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.column())
    }
}

/// Why a message was refused. Nothing was written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MessageError {
    /// A field that must not be empty is.
    #[error("{field} is empty: give it a value")]
    Empty {
        /// Which.
        field: Field,
    },
    /// A field is too long for its column.
    #[error("{field} has {chars} characters, at most {limit} are allowed")]
    TooLong {
        /// Which.
        field: Field,
        /// How long it is.
        chars: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A field holds a NUL character, which PostgreSQL cannot store.
    #[error("{field} holds a NUL character: remove it")]
    Nul {
        /// Which.
        field: Field,
    },
    /// Payload or headers are no JSON, or JSON that a store cannot keep.
    #[error("{field} {fault}")]
    Json {
        /// Which.
        field: Field,
        /// What is wrong.
        fault: JsonFault,
    },
    /// Payload or headers are too large.
    #[error("{field} has {bytes} bytes, at most {limit} are allowed: send a reference instead")]
    TooLarge {
        /// Which.
        field: Field,
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// Headers are JSON, but no object.
    #[error("headers must be a JSON object")]
    HeadersNoObject,
    /// A number is out of range.
    #[error("{field} is {value}, the least allowed is {least}")]
    TooSmall {
        /// Which.
        field: Field,
        /// What it is.
        value: i32,
        /// What it must at least be.
        least: i32,
    },
    /// Not a W3C trace context.
    #[error("traceparent is not of the form 00-<32 hex>-<16 hex>-<2 hex>")]
    Traceparent,
}

impl NewMessage {
    /// A message to `integration` (e.g. `webhook:partnerX`) that says `event_type` happened.
    /// Give it a payload with [`json`](Self::json) or [`raw`](Self::raw); it is `null` otherwise.
    pub fn new(integration: impl Into<String>, event_type: impl Into<String>) -> Self {
        Self {
            payload: Ok(RawJson::trusted("null")),
            headers: None,
            integration: integration.into(),
            event_type: event_type.into(),
            event_id: Uuid::now_v7().to_string(),
            stream_id: None,
            tenant_id: None,
            user_id: None,
            correlation_id: None,
            causation_id: None,
            source: None,
            ordering_key: None,
            schema_version: 1,
            copy: 0,
            occurred_at: None,
            due_at: None,
            max_attempts: 10,
        }
    }

    /// Sets the payload from a value. What cannot be written as JSON is reported at enqueue.
    #[must_use]
    pub fn json(mut self, value: &impl serde::Serialize) -> Self {
        self.payload = serialised(value);
        self
    }

    /// Sets the payload from JSON text, kept byte for byte where the column is text.
    #[must_use]
    pub fn raw(mut self, json: impl Into<Vec<u8>>) -> Self {
        self.payload = RawJson::check(json.into());
        self
    }

    /// Sets the headers from a value, which must be an object.
    #[must_use]
    pub fn headers(mut self, value: &impl serde::Serialize) -> Self {
        self.headers = Some(serialised(value));
        self
    }

    /// Sets the headers from JSON text, which must be an object.
    #[must_use]
    pub fn raw_headers(mut self, json: impl Into<Vec<u8>>) -> Self {
        self.headers = Some(RawJson::check(json.into()));
        self
    }

    /// Sets the event id, by which receivers deduplicate.
    #[must_use]
    pub fn event_id(mut self, id: impl Into<String>) -> Self {
        self.event_id = id.into();
        self
    }

    /// Sets the aggregate or stream it comes from.
    #[must_use]
    pub fn stream(mut self, id: impl Into<String>) -> Self {
        self.stream_id = Some(id.into());
        self
    }

    /// Sets the tenant.
    #[must_use]
    pub fn tenant(mut self, id: impl Into<String>) -> Self {
        self.tenant_id = Some(id.into());
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, id: impl Into<String>) -> Self {
        self.user_id = Some(id.into());
        self
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the causation id.
    #[must_use]
    pub fn causation(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// Sets the originating module or service.
    #[must_use]
    pub fn source(mut self, name: impl Into<String>) -> Self {
        self.source = Some(name.into());
        self
    }

    /// Sets the ordering key.
    #[must_use]
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the version of the payload's schema.
    #[must_use]
    pub fn schema_version(mut self, version: i32) -> Self {
        self.schema_version = version;
        self
    }

    /// Sets the ordinal, for several messages of one event to one integration.
    #[must_use]
    pub fn copy(mut self, ordinal: i32) -> Self {
        self.copy = ordinal;
        self
    }

    /// Sets when it happened.
    #[must_use]
    pub fn occurred_at(mut self, at: DateTime<Utc>) -> Self {
        self.occurred_at = Some(at);
        self
    }

    /// Sets when it may be delivered.
    #[must_use]
    pub fn due_at(mut self, at: DateTime<Utc>) -> Self {
        self.due_at = Some(at);
        self
    }

    /// Sets how many failed attempts it may have.
    #[must_use]
    pub fn max_attempts(mut self, attempts: i32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// The stream it is fenced by: the one set, or the event id.
    #[must_use]
    pub fn stream_id(&self) -> &str {
        self.stream_id.as_deref().unwrap_or(&self.event_id)
    }

    /// The payload, if it was acceptable JSON.
    #[must_use]
    pub fn payload(&self) -> Option<&RawJson> {
        self.payload.as_ref().ok()
    }

    /// The headers, if there are any and they were acceptable JSON.
    #[must_use]
    pub fn headers_json(&self) -> Option<&RawJson> {
        self.headers.as_ref().and_then(|headers| headers.as_ref().ok())
    }

    /// Adds a W3C `traceparent` to the headers, unless they carry one.
    ///
    /// # Errors
    /// When it is malformed, or the headers are no object.
    pub fn with_traceparent(mut self, traceparent: &str) -> Result<Self, MessageError> {
        if !is_traceparent(traceparent) {
            return Err(MessageError::Traceparent);
        }
        let mut headers = match &self.headers {
            None => serde_json::Map::new(),
            Some(Err(fault)) => {
                return Err(MessageError::Json { field: Field::Headers, fault: fault.clone() });
            }
            Some(Ok(json)) => {
                serde_json::from_str(json.as_str()).map_err(|_| MessageError::HeadersNoObject)?
            }
        };
        headers.entry("traceparent").or_insert_with(|| traceparent.into());
        self.headers = Some(serialised(&headers));
        Ok(self)
    }

    /// Checks everything that a store would refuse, or could not keep.
    ///
    /// # Errors
    /// The first fault found, by field.
    pub fn validate(&self, limits: &Limits) -> Result<(), MessageError> {
        required(Field::EventId, &self.event_id, 100)?;
        required(Field::StreamId, self.stream_id(), 200)?;
        required(Field::Integration, &self.integration, 120)?;
        required(Field::EventType, &self.event_type, 120)?;
        optional(Field::TenantId, self.tenant_id.as_deref(), 60)?;
        optional(Field::UserId, self.user_id.as_deref(), 60)?;
        optional(Field::CorrelationId, self.correlation_id.as_deref(), 120)?;
        optional(Field::CausationId, self.causation_id.as_deref(), 120)?;
        optional(Field::Source, self.source.as_deref(), 120)?;
        optional(Field::OrderingKey, self.ordering_key.as_deref(), 200)?;
        at_least(Field::MaxAttempts, self.max_attempts, 1)?;
        at_least(Field::SchemaVersion, self.schema_version, 0)?;
        at_least(Field::Copy, self.copy, 0)?;
        bounded(Field::Payload, &self.payload, limits.payload_bytes)?;
        if let Some(headers) = &self.headers {
            let headers = bounded(Field::Headers, headers, limits.headers_bytes)?;
            if !headers.is_object() {
                return Err(MessageError::HeadersNoObject);
            }
        }
        Ok(())
    }
}

fn serialised(value: &impl serde::Serialize) -> Result<RawJson, JsonFault> {
    let bytes = serde_json::to_vec(value).map_err(|error| JsonFault::Syntax(error.to_string()))?;
    RawJson::check(bytes)
}

fn required(field: Field, text: &str, limit: usize) -> Result<(), MessageError> {
    if text.is_empty() {
        return Err(MessageError::Empty { field });
    }
    if text.contains('\0') {
        return Err(MessageError::Nul { field });
    }
    let chars = text.chars().count();
    if chars > limit {
        return Err(MessageError::TooLong { field, chars, limit });
    }
    Ok(())
}

fn optional(field: Field, text: Option<&str>, limit: usize) -> Result<(), MessageError> {
    text.map_or(Ok(()), |text| required(field, text, limit))
}

fn at_least(field: Field, value: i32, least: i32) -> Result<(), MessageError> {
    if value < least {
        return Err(MessageError::TooSmall { field, value, least });
    }
    Ok(())
}

fn bounded(
    field: Field,
    json: &Result<RawJson, JsonFault>,
    limit: usize,
) -> Result<&RawJson, MessageError> {
    let json = json.as_ref().map_err(|fault| MessageError::Json { field, fault: fault.clone() })?;
    if json.len() > limit {
        return Err(MessageError::TooLarge { field, bytes: json.len(), limit });
    }
    Ok(json)
}

fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    matches!(parts.as_slice(), [version, trace, span, flags]
        if hex(version, 2) && *version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2)
            && trace.bytes().any(|b| b != b'0') && span.bytes().any(|b| b != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message() -> NewMessage {
        NewMessage::new("noop", "order.created").json(&json!({"a": 1}))
    }

    fn fault(message: &NewMessage) -> MessageError {
        message.validate(&Limits::default()).expect_err("must be refused")
    }

    #[test]
    fn fault_39_bad_input_is_refused_by_field() {
        assert_eq!(
            fault(&message().stream("s".repeat(201))),
            MessageError::TooLong { field: Field::StreamId, chars: 201, limit: 200 }
        );
        assert_eq!(fault(&message().event_id("")), MessageError::Empty { field: Field::EventId });
        assert_eq!(fault(&message().tenant("")), MessageError::Empty { field: Field::TenantId });
        assert_eq!(fault(&message().user("a\0")), MessageError::Nul { field: Field::UserId });
        assert!(matches!(
            fault(&message().raw("{")),
            MessageError::Json { field: Field::Payload, .. }
        ));
        assert!(matches!(fault(&message().raw(vec![0xff])), MessageError::Json { .. }));
        assert!(matches!(fault(&message().raw("\"\\u0000\"")), MessageError::Json { .. }));
        assert!(matches!(fault(&message().raw("1e400")), MessageError::Json { .. }));
        assert!(matches!(fault(&message().raw("[".repeat(10_000))), MessageError::Json { .. }));
        assert_eq!(fault(&message().headers(&json!([1]))), MessageError::HeadersNoObject);
    }

    #[test]
    fn fault_39_a_payload_of_100_mb_is_refused() {
        let huge = format!("\"{}\"", "x".repeat(100 << 20));
        assert!(matches!(
            fault(&message().raw(huge)),
            MessageError::TooLarge { field: Field::Payload, limit: 262_144, .. }
        ));
    }

    #[test]
    fn fault_41_attempts_below_one_are_refused() {
        for attempts in [0, -1, i32::MIN] {
            assert_eq!(
                fault(&message().max_attempts(attempts)),
                MessageError::TooSmall { field: Field::MaxAttempts, value: attempts, least: 1 }
            );
        }
    }

    #[test]
    fn limits_are_inclusive_and_count_characters() {
        assert!(message().stream("é".repeat(200)).validate(&Limits::default()).is_ok());
        let exact = format!("\"{}\"", "x".repeat(256 * 1024 - 2));
        assert!(message().raw(exact).validate(&Limits::default()).is_ok());
    }

    #[test]
    fn traceparent_joins_the_headers_and_never_replaces_one() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let with = message().headers(&json!({"x": "y"})).with_traceparent(trace).unwrap();
        let headers: serde_json::Value =
            serde_json::from_str(with.headers_json().unwrap().as_str()).unwrap();
        assert_eq!(headers, json!({"x": "y", "traceparent": trace}));

        let kept =
            message().headers(&json!({"traceparent": "mine"})).with_traceparent(trace).unwrap();
        assert!(kept.headers_json().unwrap().as_str().contains("mine"));
        for bad in ["", "00-0-0-0", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(message().with_traceparent(bad).unwrap_err(), MessageError::Traceparent);
        }
    }
}
