//! A message as MQTT carries it.

use crate::wrapping::Wrapped;
use postroom_core::Outcome;
use rumqttc::v5::mqttbytes::v5::PublishProperties;

/// The longest text that MQTT has a length for.
const TEXT_BYTES_MAX: usize = 65_535;

/// What is published.
pub(super) struct Packet {
    pub(super) topic: String,
    pub(super) properties: PublishProperties,
    pub(super) body: String,
}

impl Packet {
    pub(super) fn new(topic: String, mut wrapped: Wrapped) -> Result<Self, Outcome> {
        if topic.is_empty() || !is_text(&topic) || topic.contains(['+', '#']) {
            return Err(Outcome::reject(
                "the topic made from this message is none that MQTT can publish to (empty, too \
                 long, a wildcard or a control character): correct the row's fields or the \
                 integration's `topic`",
            ));
        }
        let mut user_properties: Vec<(String, String)> = Vec::new();
        // A CloudEvent in binary mode has names without a prefix here, and they are its own.
        let cloud = &wrapped.cloud;
        wrapped.attributes.retain(|(name, _)| cloud.iter().all(|(own, _)| own != name));
        // The event's content type is that of the packet.
        wrapped.cloud.retain(|(name, _)| *name != "datacontenttype");
        for (name, value) in wrapped.take_headers("") {
            if !is_text(&name) || !is_text(&value) {
                return Err(Outcome::reject(format!(
                    "the header `{}` is too long for MQTT, or holds a NUL: correct the row's \
                     headers and set it back to PENDING",
                    name.escape_default()
                )));
            }
            user_properties.push((name.into_owned(), value));
        }
        let properties = PublishProperties {
            // UTF-8 text.
            payload_format_indicator: Some(1),
            content_type: Some(wrapped.content_type.to_owned()),
            user_properties,
            ..PublishProperties::default()
        };
        Ok(Self { topic, properties, body: wrapped.body })
    }

    /// How many bytes it has on the wire, with its packet identifier.
    pub(super) fn size(&self) -> usize {
        let text = |text: &str| 2 + text.len();
        let user = &self.properties.user_properties;
        let properties: usize = 2
            + self.properties.content_type.as_deref().map_or(0, |kind| 1 + text(kind))
            + user.iter().map(|(name, value)| 1 + text(name) + text(value)).sum::<usize>();
        let rest = text(&self.topic) + 2 + length_bytes(properties) + properties + self.body.len();
        1 + length_bytes(rest) + rest
    }
}

fn is_text(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && !text.contains('\0')
}

/// How many bytes a length takes: seven bits in each.
fn length_bytes(length: usize) -> usize {
    match length {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::wrapping::Wrapping;
    use postroom_core::RawJson;
    use postroom_testkit::sink_contract::message;
    use serde_json::Map;

    fn wrapping(format: &str) -> Wrapping {
        let options: Map<String, _> = [("format".to_owned(), format.into())].into_iter().collect();
        Wrapping::read(&mut Options::new(options))
    }

    #[test]
    fn topics_with_wildcards_or_nul_are_none() {
        for topic in ["", "a/+", "#", "a\0", &"t".repeat(70_000)] {
            let wrapped = wrapping("payload").wrap(&message("e-1")).unwrap();
            assert!(Packet::new(topic.to_owned(), wrapped).is_err(), "{topic:?}");
        }
    }

    #[test]
    fn a_stored_header_cannot_pass_for_an_attribute_of_the_cloud_event() {
        let mut forged = message("e-1");
        forged.headers = Some(RawJson::trusted(r#"{"id":"forged","shop":"eu"}"#));
        let wrapped = wrapping("cloudevents-binary").wrap(&forged).unwrap();
        let packet = Packet::new("t".to_owned(), wrapped).unwrap();
        let ids: Vec<_> =
            packet.properties.user_properties.iter().filter(|(name, _)| name == "id").collect();
        assert_eq!(ids, [&("id".to_owned(), "e-1".to_owned())]);
    }

    #[test]
    fn the_size_is_that_on_the_wire() {
        use bytes::BytesMut;
        use rumqttc::v5::mqttbytes::QoS;
        use rumqttc::v5::mqttbytes::v5::Publish;
        for length in [0, 1, 100, 200, 20_000, 3_000_000] {
            let mut large = message("e-1");
            large.payload = RawJson::trusted("x".repeat(length));
            let wrapped = wrapping("payload").wrap(&large).unwrap();
            let packet = Packet::new("orders/eu".to_owned(), wrapped).unwrap();
            let size = packet.size();
            let properties = Some(packet.properties);
            let mut publish = Publish::new(packet.topic, QoS::AtLeastOnce, packet.body, properties);
            publish.pkid = 7;
            let mut buffer = BytesMut::new();
            publish.write(&mut buffer).unwrap();
            assert_eq!(size, buffer.len());
        }
    }
}
