//! A message as an envelope: its main fields and its payload in one object.

use super::attributes::time;
use super::cloud_event::with_raw;
use postroom_core::{Message, Outcome};
use serde_json::{Map, Value, json};

/// `id` is the event id, `subject` the event type, `resource_id` the stream.
pub(super) fn wrap(message: &Message) -> Result<String, Outcome> {
    let fields = json!({
        "id": message.event_id,
        "subject": message.event_type,
        "tenant_id": message.tenant_id,
        "resource_id": message.stream_id,
        "created_at": time(message.created_at),
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
    });
    let fields: Map<String, Value> = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    with_raw(fields, "payload", message.payload.as_str())
}
