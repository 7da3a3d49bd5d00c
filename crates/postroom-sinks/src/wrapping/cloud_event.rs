//! A message as a CloudEvent, version 1.0.

use super::attributes::{attempt, stored_text, time};
use super::no_json;
use super::source::source;
use postroom_core::{Message, Outcome, REPLAY_HEADER};
use serde_json::Map;
use serde_json::value::RawValue;

/// The event's attributes. Extensions have names of lower-case letters and digits, as the
/// specification wants them, and none is empty.
pub(super) fn attributes(message: &Message) -> Vec<(&'static str, String)> {
    let when = message.occurred_at.unwrap_or(message.created_at);
    let all = [
        ("specversion", Some("1.0".to_owned())),
        ("id", Some(message.event_id.clone())),
        ("source", Some(source(message.source.as_deref()))),
        ("type", Some(message.event_type.clone())),
        ("subject", Some(message.stream_id.clone())),
        ("time", Some(time(when))),
        ("datacontenttype", Some("application/json".to_owned())),
        ("tenantid", message.tenant_id.clone()),
        ("userid", message.user_id.clone()),
        ("correlationid", message.correlation_id.clone()),
        ("causationid", message.causation_id.clone()),
        ("schemaversion", Some(message.schema_version.to_string())),
        ("traceparent", stored_text(message, "traceparent")),
        ("tracestate", stored_text(message, "tracestate")),
    ];
    present(all).collect()
}

fn present<const N: usize>(
    all: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    let present = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.filter(|(_, value)| !value.is_empty())
}

/// One JSON object, with the payload's own bytes as its `data`. What stands beside an event in
/// binary mode is inside: a list or a channel of Redis has no other place for it.
pub(super) fn structured(message: &Message, key: &str) -> Result<String, Outcome> {
    let more = [
        ("idempotencykey", Some(key.to_owned()).filter(|key| *key != message.event_id)),
        ("attempt", Some(attempt(message))),
        ("replayof", stored_text(message, REPLAY_HEADER)),
    ];
    let mut event: Map<String, serde_json::Value> = Map::new();
    for (name, value) in attributes(message).into_iter().chain(present(more)) {
        event.insert(name.to_owned(), value.into());
    }
    with_raw(event, "data", message.payload.as_str())
}

/// An object with one more member whose bytes stay as they are.
pub(super) fn with_raw(
    object: Map<String, serde_json::Value>,
    name: &str,
    raw: &str,
) -> Result<String, Outcome> {
    #[derive(serde::Serialize)]
    struct WithRaw<'a> {
        #[serde(flatten)]
        object: Map<String, serde_json::Value>,
        #[serde(flatten)]
        raw: std::collections::BTreeMap<&'a str, &'a RawValue>,
    }
    let value: &RawValue = serde_json::from_str(raw).map_err(|_| no_json())?;
    let whole = WithRaw { object, raw: [(name, value)].into() };
    serde_json::to_string(&whole).map_err(|_| no_json())
}
