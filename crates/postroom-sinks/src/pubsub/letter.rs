//! A message as it is published.

use crate::wrapping::Wrapping;
use google_cloud_pubsub::model;
use postroom_core::{Message, Outcome};
use std::collections::HashMap;

// What the service takes. Its emulator takes more, so nothing but this says so in time.
const REQUEST_BYTES_MAX: usize = 10_000_000;
const ATTRIBUTES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 1024;
const KEY_BYTES_MAX: usize = 1024;

/// A message as it is published.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// Its place in the batch.
    pub(super) index: usize,
    pub(super) message: model::Message,
}

impl Letter {
    /// Makes one message up.
    ///
    /// # Errors
    /// The rejection to report for what the service does not take.
    pub(super) fn new(
        index: usize,
        message: &Message,
        wrapping: Wrapping,
    ) -> Result<Self, Outcome> {
        let mut wrapped = wrapping.wrap(message)?;
        let headers = wrapped.take_headers("ce-");
        let mut attributes: HashMap<String, String> =
            headers.map(|(name, value)| (name.into_owned(), value)).collect();
        attributes.insert("content-type".to_owned(), wrapped.content_type.to_owned());
        if attributes.len() > ATTRIBUTES_MAX {
            return Err(unsuited(format!(
                "the message has {} attributes, and Pub/Sub takes {ATTRIBUTES_MAX}",
                attributes.len()
            )));
        }
        for (name, value) in &attributes {
            let shown: String = name.escape_default().take(40).collect();
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with("goog") {
                return Err(unsuited(format!(
                    "Pub/Sub does not take the header `{shown}`: names have up to \
                     {NAME_BYTES_MAX} bytes and do not begin with goog"
                )));
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(unsuited(format!(
                    "the value of `{shown}` has {} bytes, and Pub/Sub takes {VALUE_BYTES_MAX}",
                    value.len()
                )));
            }
        }
        let key = message.ordering_key.clone().unwrap_or_default();
        if key.len() > KEY_BYTES_MAX {
            return Err(Outcome::reject(format!(
                "the ordering key has {} bytes, and Pub/Sub takes {KEY_BYTES_MAX}: choose a \
                 shorter one",
                key.len()
            )));
        }
        let beside: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = wrapped.body.len() + beside + key.len();
        if bytes > REQUEST_BYTES_MAX {
            return Err(Outcome::reject(format!(
                "the message has {bytes} bytes with its attributes, and Pub/Sub takes \
                 {REQUEST_BYTES_MAX}: send a reference instead"
            )));
        }
        let message = model::Message::new()
            .set_data(wrapped.body)
            .set_attributes(attributes)
            .set_ordering_key(key);
        Ok(Self { index, message })
    }

    /// The ordering key; empty when there is none.
    pub(super) fn key(&self) -> &str {
        &self.message.ordering_key
    }
}

fn unsuited(problem: String) -> Outcome {
    Outcome::reject(format!("{problem}: correct the row's headers and set it back to PENDING"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_core::RawJson;
    use postroom_testkit::sink_contract::message;
    use serde_json::{Map, Value, json};

    fn letter(message: &Message) -> Result<Letter, Outcome> {
        Letter::new(0, message, Wrapping::default())
    }

    fn with_headers(headers: &Value) -> Message {
        let headers = Some(RawJson::trusted(headers.to_string()));
        Message { headers, ..message("e-1") }
    }

    #[test]
    fn what_is_known_travels_as_attributes() {
        let mut sent = message("e-1");
        sent.ordering_key = Some("k".to_owned());
        let letter = letter(&sent).unwrap();
        assert_eq!(letter.message.data, sent.payload.as_str());
        assert_eq!(letter.message.ordering_key, "k");
        for (name, value) in [
            ("idempotency-key", "e-1"),
            ("postroom-tenant", "acme"),
            ("shop", "eu"),
            ("content-type", "application/json"),
        ] {
            assert_eq!(letter.message.attributes[name], value);
        }
    }

    #[test]
    fn what_the_service_does_not_take_is_rejected_with_a_remedy() {
        let many: Map<String, Value> = (0..100).map(|n| (format!("h{n}"), n.into())).collect();
        let mut large = message("e-1");
        large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(10_000_000)));
        let mut long = message("e-1");
        long.ordering_key = Some("k".repeat(1025));
        for bad in [
            with_headers(&Value::Object(many)),
            with_headers(&json!({"goog-x": "1"})),
            with_headers(&json!({"": "1"})),
            with_headers(&json!({"n".repeat(257): "1"})),
            with_headers(&json!({"x": "v".repeat(1025)})),
            large,
            long,
        ] {
            let Err(Outcome::Reject { error }) = letter(&bad) else { panic!("{:?}", bad.headers) };
            assert!(error.contains(": ") && error.len() < 300, "{error}");
        }
        assert!(letter(&with_headers(&json!({"x": "v".repeat(1024)}))).is_ok());
    }
}
