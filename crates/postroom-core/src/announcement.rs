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
    // A row written by hand may hold empty texts, which no message may: its death is announced
    // all the same.
    let told = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let id = message.id.to_string();
    let stream = if message.stream_id.is_empty() { &id } else { &message.stream_id };
    let causation = if message.event_id.is_empty() { &id } else { &message.event_id };
    let mut announcement = NewMessage::new(integration, DEAD_EVENT_TYPE)
        .stream(stream)
        .json(&serde_json::json!({
            "outboxId": message.id,
            "sourceEventId": message.event_id,
            "sourceStreamId": message.stream_id,
            "integrationType": message.integration,
            "eventType": message.event_type,
            "attempts": attempts,
            "error": clip_error(error),
        }))
        .causation(causation);
    announcement.tenant_id = told(&message.tenant_id);
    announcement.user_id = told(&message.user_id);
    announcement.correlation_id = told(&message.correlation_id);
    announcement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    /// A row written by hand, with every text empty that may be.
    fn odd() -> Message {
        let empty = Some(String::new());
        Message {
            tenant_id: empty.clone(),
            user_id: empty.clone(),
            correlation_id: empty,
            ..Message::unread(1, uuid::Uuid::nil().into(), String::new())
        }
    }

    #[test]
    fn the_death_of_a_row_that_makes_no_sense_can_be_announced() {
        let announcement = announce_dead(&odd(), "refused", 1, "noop");
        assert_eq!(announcement.validate(&Limits::default()), Ok(()));
        assert_eq!(announcement.stream_id(), odd().id.to_string());
    }
}
