//! A message as a record of Kafka.

use super::config::KafkaConfig;
use postroom_core::{Message, Outcome};
use rdkafka::message::{Header, OwnedHeaders};

/// What decides about a record's partition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Key {
    /// Each event by itself: spread evenly.
    #[default]
    EventId,
    /// Events with the same ordering key stay together, in order.
    OrderingKey,
}

impl Key {
    fn of(self, message: &Message) -> &str {
        match self {
            Self::EventId => &message.event_id,
            // A message that names no order may go anywhere.
            Self::OrderingKey => message.ordering_key.as_ref().unwrap_or(&message.event_id),
        }
    }
}

/// A record. Its time is when it is sent: by the time of the event, which may be long ago, the
/// topic's retention could remove it before anyone has read it.
pub(super) struct Record {
    pub(super) key: String,
    pub(super) body: String,
    pub(super) headers: OwnedHeaders,
}

impl Record {
    /// Makes up a message.
    ///
    /// # Errors
    /// The rejection to report when the row holds something that is no JSON.
    pub(super) fn of(message: &Message, config: &KafkaConfig) -> Result<Self, Outcome> {
        let wrapped = config.wrapping.wrap(message)?;
        let count = wrapped.attributes.len() + wrapped.cloud.len() + 1;
        let own = wrapped.attributes.iter().map(|(name, value)| (name.as_ref(), value.as_str()));
        let headers = own
            .filter(|(name, _)| !name.eq_ignore_ascii_case("content-type"))
            // CloudEvents' binding for Kafka: this is the event's `datacontenttype`.
            .chain([("content-type", wrapped.content_type)])
            .fold(OwnedHeaders::new_with_capacity(count), |headers, (name, value)| {
                headers.insert(Header { key: name, value: Some(value) })
            });
        let cloud = wrapped.cloud.iter().filter(|(name, _)| *name != "datacontenttype");
        let headers = cloud.fold(headers, |headers, (name, value)| {
            headers.insert(Header { key: &format!("ce_{name}"), value: Some(value) })
        });
        Ok(Self { key: config.key.of(message).to_owned(), body: wrapped.body, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::message;

    #[test]
    fn the_key_is_the_event_id_or_the_ordering_key() {
        let mut message = message("e-1");
        assert_eq!(Key::EventId.of(&message), "e-1");
        assert_eq!(Key::OrderingKey.of(&message), "e-1", "there is no order to keep");
        message.ordering_key = Some("account-7".to_owned());
        assert_eq!(Key::EventId.of(&message), "e-1");
        assert_eq!(Key::OrderingKey.of(&message), "account-7");
    }
}
