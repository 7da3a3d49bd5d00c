//! What accompanies a message, under one set of names.

use super::{Name, no_json};
use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{Message, Outcome, REPLAY_HEADER};
use serde_json::{Map, Value};

/// Names whose value is Postroom's alone, besides all that begin with one of [`OUR_PREFIXES`].
const OURS: [&str; 4] = ["idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"];
/// How many attributes Postroom adds at most.
const OURS_MAX: usize = 13;
const OUR_PREFIXES: [&str; 4] = ["postroom-", "ce-", "ce_", "cloudevents:"];

/// Whether a stored header of this name is left out, because Postroom sets it itself.
pub(crate) fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name != REPLAY_HEADER
        && (OURS.contains(&name.as_str())
            || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

/// The message's own headers, then what Postroom knows about it.
pub(super) fn of(message: &Message, key: &str) -> Result<Vec<(Name, String)>, Outcome> {
    let mut attributes = stored(message)?;
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            attributes.push((Name::Borrowed(name), value));
        }
    };
    add("idempotency-key", Some(key.to_owned()));
    add("postroom-event-id", Some(message.event_id.clone()));
    add("postroom-event-type", Some(message.event_type.clone()));
    add("postroom-message-id", Some(message.id.to_string()));
    add("postroom-stream", Some(message.stream_id.clone()));
    add("postroom-tenant", message.tenant_id.clone());
    add("postroom-user", message.user_id.clone());
    add("postroom-correlation", message.correlation_id.clone());
    add("postroom-causation", message.causation_id.clone());
    add("postroom-source", message.source.clone());
    add("postroom-schema-version", Some(message.schema_version.to_string()));
    add("postroom-occurred-at", message.occurred_at.map(time));
    add("postroom-attempt", Some(attempt(message)));
    Ok(attributes)
}

/// The message's own headers as text: what is no string is written as JSON.
fn stored(message: &Message) -> Result<Vec<(Name, String)>, Outcome> {
    let Some(stored) = &message.headers else { return Ok(Vec::with_capacity(OURS_MAX)) };
    let stored: Map<String, Value> =
        serde_json::from_str(stored.as_str()).map_err(|_| no_json())?;
    let mut attributes = Vec::with_capacity(stored.len() + OURS_MAX);
    let own = stored.into_iter().filter(|(name, value)| !is_ours(name) && !value.is_null());
    attributes.extend(own.map(|(name, value)| match value {
        Value::String(text) => (Name::Owned(name), text),
        other => (Name::Owned(name), other.to_string()),
    }));
    Ok(attributes)
}

/// One of the message's own headers, if it is a string.
pub(super) fn stored_text(message: &Message, name: &str) -> Option<String> {
    let stored: Map<String, Value> =
        serde_json::from_str(message.headers.as_ref()?.as_str()).ok()?;
    stored.get(name)?.as_str().map(str::to_owned)
}

/// Which attempt this is, from 1.
pub(super) fn attempt(message: &Message) -> String {
    (u64::from(message.attempts) + 1).to_string()
}

/// A time as RFC 3339 in UTC, always of the same length.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
