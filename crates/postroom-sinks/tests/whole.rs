//! What is handed over whole, member by member, by the sinks without a protocol.

use postroom_testkit::sink_contract::Received;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Where the server is of a destination that has none.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Which members are which of the documented attributes.
const NAMES: [(&str, &str); 11] = [
    ("event_id", "postroom-event-id"),
    ("event_type", "postroom-event-type"),
    ("id", "postroom-message-id"),
    ("stream_id", "postroom-stream"),
    ("tenant_id", "postroom-tenant"),
    ("user_id", "postroom-user"),
    ("correlation_id", "postroom-correlation"),
    ("causation_id", "postroom-causation"),
    ("source", "postroom-source"),
    ("schema_version", "postroom-schema-version"),
    ("occurred_at", "postroom-occurred-at"),
];

/// What a receiver makes of a message as JSON.
pub(crate) fn received(line: &Value) -> Received {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let named = NAMES.iter().map(|(member, name)| ((*name).to_owned(), text(&line[member])));
    let stored = line["headers"].as_object().unwrap().iter();
    let stored = stored.map(|(name, value)| (name.clone(), text(value)));
    // A line counts the attempts that failed.
    let attempt = (line["attempts"].as_u64().unwrap() + 1).to_string();
    let attempt = ("postroom-attempt".to_owned(), attempt);
    Received {
        key: text(&line["event_id"]),
        body: line["payload"].to_string(),
        attributes: named.chain(stored).chain([attempt]).collect(),
    }
}
