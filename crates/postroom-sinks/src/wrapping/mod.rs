//! A message as it travels: its body in the format that was asked for, and the attributes that
//! accompany it under the same names on every protocol that has a place for them.

mod attributes;
mod cloud_event;
mod envelope;
mod once;
mod source;

pub(crate) use attributes::{is_ours, time};
pub(crate) use once::once;

use crate::options::Options;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postroom_core::{Message, Outcome};
use std::borrow::Cow;

/// The name of an attribute: one of Postroom's, or one that the message brings.
pub(crate) type Name = Cow<'static, str>;

/// What the bindings of CloudEvents for HTTP and NATS want encoded in a header, besides what is
/// not ASCII.
const CLOUD: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// How an integration's messages are made up for their way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrapping {
    format: Format,
    key: IdempotencyKey,
}

/// What the body is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Format {
    /// The payload as it stands.
    #[default]
    Payload,
    /// A CloudEvent in structured mode: one JSON object around the payload.
    CloudEvents,
    /// A CloudEvent in binary mode: the payload, and the event's attributes beside it.
    CloudEventsBinary,
    /// One JSON object with the message's main fields around the payload.
    Envelope,
}

/// What receivers deduplicate by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum IdempotencyKey {
    /// The event id: a replay is recognised as the same.
    #[default]
    EventId,
    /// The row's id: every row counts as its own, replays included.
    MessageId,
}

const FORMATS: [(&str, Format); 4] = [
    ("payload", Format::Payload),
    ("cloudevents", Format::CloudEvents),
    ("cloudevents-binary", Format::CloudEventsBinary),
    ("envelope", Format::Envelope),
];
const IDEMPOTENCY_KEYS: [(&str, IdempotencyKey); 2] =
    [("event_id", IdempotencyKey::EventId), ("message_id", IdempotencyKey::MessageId)];

impl Wrapping {
    /// Reads `format` and `idempotency_key`, which every sink that carries JSON takes.
    pub(crate) fn read(options: &mut Options) -> Self {
        Self::read_or(options, Format::default())
    }

    /// The same with another format unless the options say otherwise.
    pub(crate) fn read_or(options: &mut Options, format: Format) -> Self {
        Self {
            format: options.choice("format", &FORMATS).unwrap_or(format),
            key: options.choice("idempotency_key", &IDEMPOTENCY_KEYS).unwrap_or_default(),
        }
    }

    /// Reads `idempotency_key` alone, for sinks whose templates make up the body.
    #[cfg(any(feature = "email", feature = "slack", feature = "sms"))]
    pub(crate) fn read_key(options: &mut Options) -> Self {
        let key = options.choice("idempotency_key", &IDEMPOTENCY_KEYS).unwrap_or_default();
        Self { format: Format::Payload, key }
    }

    /// What the body is.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Makes up one message.
    ///
    /// # Errors
    /// The rejection to report when the row holds something that is no JSON.
    pub(crate) fn wrap(&self, message: &Message) -> Result<Wrapped, Outcome> {
        let (idempotency_key, once) = match self.key {
            IdempotencyKey::EventId => (message.event_id.clone(), once(message)),
            IdempotencyKey::MessageId => (message.id.to_string(), message.id.to_string()),
        };
        let mut cloud = Vec::new();
        let (content_type, body) = match self.format {
            Format::Payload => ("application/json", message.payload.as_str().to_owned()),
            Format::CloudEvents => (
                "application/cloudevents+json",
                cloud_event::structured(message, &idempotency_key)?,
            ),
            Format::CloudEventsBinary => {
                cloud = cloud_event::attributes(message);
                ("application/json", message.payload.as_str().to_owned())
            }
            Format::Envelope => ("application/json", envelope::wrap(message)?),
        };
        let attributes = attributes::of(message, &idempotency_key)?;
        Ok(Wrapped { idempotency_key, once, content_type, body, attributes, cloud })
    }
}

/// A message made up for its way.
#[derive(Clone, Debug)]
pub(crate) struct Wrapped {
    /// What the receiver deduplicates by, who knows whose event it is.
    pub(crate) idempotency_key: String,
    /// What the destination itself is given to deduplicate by: no two messages that the outbox
    /// tells apart have the same.
    pub(crate) once: String,
    /// The body's media type.
    pub(crate) content_type: &'static str,
    /// The body.
    pub(crate) body: String,
    /// What accompanies it, by name.
    pub(crate) attributes: Vec<(Name, String)>,
    /// The attributes of a CloudEvent in binary mode, without the prefix that each protocol's
    /// binding gives them. Empty in every other format.
    pub(crate) cloud: Vec<(&'static str, String)>,
}

impl Wrapped {
    /// Takes out all that accompanies the body, with the CloudEvent's attributes under this
    /// prefix.
    pub(crate) fn take_headers(
        &mut self,
        cloud_prefix: &str,
    ) -> impl Iterator<Item = (Name, String)> {
        let cloud = std::mem::take(&mut self.cloud).into_iter();
        let cloud =
            cloud.map(move |(name, value)| (Name::Owned(format!("{cloud_prefix}{name}")), value));
        std::mem::take(&mut self.attributes).into_iter().chain(cloud)
    }

    /// For the bindings whose headers are ASCII: encodes the CloudEvent's attributes as these want
    /// it.
    pub(crate) fn encode_cloud(&mut self) {
        for (_, value) in &mut self.cloud {
            *value = utf8_percent_encode(value, CLOUD).to_string();
        }
    }

    /// For protocols whose headers are lines of text: rejects a name or value that would end its
    /// line, since what follows could pass for a header or a message of its own.
    ///
    /// # Errors
    /// The rejection to report; it names the header and never its value.
    pub(crate) fn expect_one_line_each(&self) -> Result<(), Outcome> {
        for (name, value) in &self.attributes {
            let is_line = |text: &str| is_plain(text) || !text.chars().any(char::is_control);
            let is_name = !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
            if !is_name || !is_line(value) {
                return Err(Outcome::reject(format!(
                    "the header `{}` holds a character that this protocol does not allow: correct \
                     the row's headers and set it back to PENDING",
                    name.escape_default()
                )));
            }
        }
        Ok(())
    }
}

/// Whether a text is printable ASCII, as nearly every header is. It looks at all of it whatever it
/// finds, since a loop without an early end takes many bytes at once.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'))
}

/// The rejection for a row whose content is no JSON.
pub(crate) fn no_json() -> Outcome {
    Outcome::reject(
        "the payload or the headers are not JSON: correct the row and set it back to PENDING",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use chrono::{TimeZone as _, Utc};
    use postroom_core::RawJson;
    use serde_json::{Value, json};

    fn message() -> Message {
        let at = Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap();
        Message {
            id: uuid::Uuid::from_u128(7).into(),
            seq: 1,
            event_id: "e-1".to_owned(),
            stream_id: "order-1".to_owned(),
            integration: "kafka:orders".to_owned(),
            event_type: "order.placed.v1".to_owned(),
            payload: RawJson::trusted("{ \"b\": 1.50 }"),
            headers: Some(RawJson::trusted(
                r#"{"traceparent":"00-a","shop":"eu","n":3,"deep":{"a":1},"none":null,
                    "Idempotency-Key":"forged","postroom-user":"forged","ce-id":"forged",
                    "postroom-replay-of":"018f0000-0000-7000-8000-000000000001"}"#,
            )),
            tenant_id: Some("acme".to_owned()),
            user_id: None,
            correlation_id: Some("c-1".to_owned()),
            causation_id: Some("k-1".to_owned()),
            source: Some("shop".to_owned()),
            ordering_key: None,
            schema_version: 3,
            copy: 0,
            occurred_at: Some(at),
            due_at: at,
            attempts: 4,
            max_attempts: 10,
            created_at: at,
        }
    }

    fn wrapping(options: Value) -> Wrapping {
        let Value::Object(options) = options else { panic!("a table") };
        let mut options = Options::new(options);
        let wrapping = Wrapping::read(&mut options);
        assert_eq!(options.finish(&[]), []);
        wrapping
    }

    #[test]
    fn the_payload_is_unchanged_and_accompanied_by_all_that_is_known() {
        let wrapped = Wrapping::default().wrap(&message()).unwrap();
        assert_eq!(wrapped.body, "{ \"b\": 1.50 }");
        assert_eq!(
            (wrapped.content_type, wrapped.idempotency_key.as_str()),
            ("application/json", "e-1")
        );
        let expected = [
            ("shop", "eu"),
            ("n", "3"),
            ("deep", "{\"a\":1}"),
            ("traceparent", "00-a"),
            ("postroom-replay-of", "018f0000-0000-7000-8000-000000000001"),
            ("idempotency-key", "e-1"),
            ("postroom-event-id", "e-1"),
            ("postroom-event-type", "order.placed.v1"),
            ("postroom-message-id", "00000000-0000-0000-0000-000000000007"),
            ("postroom-stream", "order-1"),
            ("postroom-tenant", "acme"),
            ("postroom-correlation", "c-1"),
            ("postroom-causation", "k-1"),
            ("postroom-source", "shop"),
            ("postroom-schema-version", "3"),
            ("postroom-occurred-at", "2026-03-01T12:00:00.000000Z"),
            ("postroom-attempt", "5"),
        ];
        let mut expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| (Name::Borrowed(*name), (*value).to_owned()))
            .collect();
        let mut found = wrapped.attributes;
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cloud_event_is_an_object_or_stands_beside_the_payload() {
        let wrapped = wrapping(json!({"format": "cloudevents"})).wrap(&message()).unwrap();
        assert_eq!(wrapped.content_type, "application/cloudevents+json");
        let event: Value = serde_json::from_str(&wrapped.body).unwrap();
        let expected = json!({
            "specversion": "1.0", "id": "e-1", "source": "shop", "type": "order.placed.v1",
            "subject": "order-1", "time": "2026-03-01T12:00:00.000000Z",
            "datacontenttype": "application/json", "tenantid": "acme", "correlationid": "c-1",
            "causationid": "k-1", "schemaversion": "3", "traceparent": "00-a", "attempt": "5",
            "replayof": "018f0000-0000-7000-8000-000000000001", "data": {"b": 1.5},
        });
        assert_eq!(event, expected);
        assert!(wrapped.body.contains("{ \"b\": 1.50 }"), "the payload's own bytes");

        let by_row = json!({"format": "cloudevents", "idempotency_key": "message_id"});
        let wrapped = wrapping(by_row).wrap(&message()).unwrap();
        let event: Value = serde_json::from_str(&wrapped.body).unwrap();
        assert_eq!(event["idempotencykey"], message().id.to_string());

        let binary = wrapping(json!({"format": "cloudevents-binary"}));
        let mut wrapped = binary.wrap(&message()).unwrap();
        assert_eq!(wrapped.body, "{ \"b\": 1.50 }");
        let headers: Vec<_> = wrapped.take_headers("ce-").collect();
        for (name, value) in [("ce-id", "e-1"), ("ce-specversion", "1.0"), ("shop", "eu")] {
            assert!(headers.contains(&(Name::Borrowed(name), value.to_owned())), "{name}");
        }
    }

    #[test]
    fn an_envelope_has_the_main_fields_around_the_payload() {
        let wrapped = wrapping(json!({"format": "envelope"})).wrap(&message()).unwrap();
        let envelope: Value = serde_json::from_str(&wrapped.body).unwrap();
        let expected = json!({
            "id": "e-1", "subject": "order.placed.v1", "tenant_id": "acme",
            "resource_id": "order-1", "payload": {"b": 1.5},
            "created_at": "2026-03-01T12:00:00.000000Z",
            "correlation_id": "c-1", "causation_id": "k-1",
        });
        assert_eq!(envelope, expected);
    }

    #[test]
    fn the_key_can_be_the_rows_own_id() {
        let wrapped = wrapping(json!({"idempotency_key": "message_id"})).wrap(&message()).unwrap();
        assert_eq!(wrapped.idempotency_key, message().id.to_string());
        assert_eq!(wrapped.once, message().id.to_string());
    }

    #[test]
    fn fault_35_a_header_that_would_end_its_line_is_rejected() {
        for headers in [
            r#"{"a":"b\r\nHost: x"}"#,
            r#"{"a":"\u0000"}"#,
            r#"{"a b":"c"}"#,
            r#"{"a\n":"c"}"#,
            r#"{"":"c"}"#,
        ] {
            let mut message = message();
            message.headers = Some(RawJson::trusted(headers));
            let wrapped = Wrapping::default().wrap(&message).unwrap();
            let outcome = wrapped.expect_one_line_each().unwrap_err();
            assert!(matches!(outcome, Outcome::Reject { .. }), "{headers}");
        }
        let wrapped = Wrapping::default().wrap(&message()).unwrap();
        assert_eq!(wrapped.expect_one_line_each(), Ok(()));
    }
}
