//! The word that a message has died, sent as a message of its own.

use crate::{Message, NewMessage, clip_error};

/// The event type of an announcement.
pub const DEAD_EVENT_TYPE: &str = "postroom.message.dead.v1";

/// Announces to `integration` that `message` is dead. It names the message and the reason and
/// leaves the payload where it is: in the outbox, under the message's id.
///
/// The announcement has an event id of its own, since one event can die at several integrations
/// and again after a redrive; the dead event's id is its causation.
#[must_use]
pub fn announce_dead(
    message: &Message,
    error: &str,
    attempts: u32,
    integration: &str,
) -> NewMessage {
    let mut announcement = NewMessage::new(integration, DEAD_EVENT_TYPE)
        .stream(&message.stream_id)
        .json(&serde_json::json!({
            "outboxId": message.id,
            "sourceEventId": message.event_id,
            "sourceStreamId": message.stream_id,
            "integrationType": message.integration,
            "eventType": message.event_type,
            "attempts": attempts,
            "error": clip_error(error),
        }))
        .causation(&message.event_id);
    announcement.tenant_id.clone_from(&message.tenant_id);
    announcement.user_id.clone_from(&message.user_id);
    announcement.correlation_id.clone_from(&message.correlation_id);
    announcement
}
