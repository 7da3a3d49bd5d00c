//! A message as an entry of a request.

use crate::options::Options;
use crate::wrapping::{Format, Name, Wrapping};
use postroom_core::{Message, Outcome};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// The most entries that one request takes.
pub(crate) const ENTRIES_MAX: usize = 10;
/// What requests of several entries are kept to. It is all that SNS takes, and all that queues
/// took for years; where more is allowed, a larger message travels alone.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// The longest that identifiers of FIFO queues and topics may be.
const ID_LENGTH_MAX: usize = 128;

/// Those that travel as attributes of their own. Queues take ten attributes at most, and a topic
/// drops what it cannot pass on to a queue: so all others travel together in one more.
const SINGLE: [&str; 8] = [
    "idempotency-key",
    "postroom-event-id",
    "postroom-event-type",
    "postroom-stream",
    "postroom-tenant",
    "postroom-correlation",
    "postroom-source",
    "traceparent",
];
/// All others, as one JSON object of strings.
const REST: &str = "postroom-headers";
const CONTENT_TYPE: &str = "content-type";

/// Reads `format` and `idempotency_key`.
pub(crate) fn read_wrapping(options: &mut Options) -> Wrapping {
    let wrapping = Wrapping::read(options);
    if wrapping.format() == Format::CloudEventsBinary {
        options.fault(
            &["format"],
            "needs more attributes beside the body than a queue, or one behind a topic, has room for",
            Some("use \"cloudevents\", which is one body".to_owned()),
        );
    }
    wrapping
}

/// How messages become entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    pub(crate) wrapping: Wrapping,
    pub(crate) is_fifo: bool,
    /// The most that one message may have, attributes included.
    pub(crate) bytes_max: usize,
}

/// A message as it is sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// Its place in the batch.
    pub(crate) index: usize,
    pub(crate) body: String,
    pub(crate) attributes: Vec<(Name, String)>,
    /// For what is FIFO: what order is kept by, and what repetitions are known by.
    pub(crate) fifo: Option<Fifo>,
    bytes: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fifo {
    pub(crate) group: String,
    pub(crate) deduplication: String,
}

impl Entry {
    /// What it is called in its request.
    pub(crate) fn id(&self) -> String {
        self.index.to_string()
    }
}

impl Make {
    /// Makes one message up.
    ///
    /// # Errors
    /// The rejection to report for what no such service takes.
    pub(crate) fn entry(&self, index: usize, message: &Message) -> Result<Entry, Outcome> {
        let wrapped = self.wrapping.wrap(message)?;
        let mut attributes = vec![(Name::Borrowed(CONTENT_TYPE), wrapped.content_type.to_owned())];
        let mut rest = Map::new();
        for (name, value) in wrapped.attributes {
            // There are no empty attributes.
            if SINGLE.contains(&&*name) && !value.is_empty() {
                attributes.push((name, value));
            } else {
                rest.insert(name.into_owned(), Value::String(value));
            }
        }
        attributes.push((Name::Borrowed(REST), Value::Object(rest).to_string()));
        let texts = attributes.iter().map(|(name, value)| (name.as_ref(), value.as_str()));
        for (name, text) in texts.chain([("the body", wrapped.body.as_str())]) {
            if !text.chars().all(is_allowed) {
                return Err(Outcome::reject(format!(
                    "{name} holds a character that is not allowed there (U+FFFE, U+FFFF, or a \
                     control character): correct the row and set it back to PENDING"
                )));
            }
        }
        let beside =
            attributes.iter().map(|(name, value)| name.len() + "String".len() + value.len());
        let bytes = wrapped.body.len() + beside.sum::<usize>();
        if bytes > self.bytes_max {
            return Err(Outcome::reject(format!(
                "the message has {bytes} bytes with its attributes, and {} are allowed: send a \
                 reference instead",
                self.bytes_max
            )));
        }
        let group = message.ordering_key.as_deref().filter(|key| !key.is_empty());
        let group = group.unwrap_or(&message.stream_id);
        let group = if group.is_empty() { &wrapped.idempotency_key } else { group };
        let fifo = self
            .is_fifo
            .then(|| Fifo { group: identifier(group), deduplication: identifier(&wrapped.once) });
        Ok(Entry { index, body: wrapped.body, attributes, fifo, bytes })
    }
}

/// Entries in the order they have, as few requests as they fit into.
pub(super) fn requests(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut requests: Vec<Vec<Entry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        match requests.last_mut() {
            Some(last) if last.len() < ENTRIES_MAX && bytes + entry.bytes <= REQUEST_BYTES_MAX => {
                bytes += entry.bytes;
                last.push(entry);
            }
            _ => {
                bytes = entry.bytes;
                requests.push(vec![entry]);
            }
        }
    }
    requests
}

/// What these services take in bodies and attributes: the characters of XML.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// The text itself where it may stand in an identifier, and its SHA-256 in hexadecimal where it
/// may not.
fn identifier(text: &str) -> String {
    let is_good = |byte: u8| byte.is_ascii_graphic();
    if !text.is_empty() && text.len() <= ID_LENGTH_MAX && text.bytes().all(is_good) {
        return text.to_owned();
    }
    let mut hexadecimal = String::with_capacity(64);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Writing to a string does not fail.
        let _ = write!(hexadecimal, "{byte:02x}");
    }
    hexadecimal
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_core::RawJson;
    use postroom_testkit::sink_contract::message;

    fn make(is_fifo: bool) -> Make {
        Make { wrapping: Wrapping::default(), is_fifo, bytes_max: 1 << 20 }
    }

    fn sized(index: usize, bytes: usize) -> Entry {
        Entry { index, body: String::new(), attributes: Vec::new(), fifo: None, bytes }
    }

    #[test]
    fn a_message_has_ten_attributes_whatever_it_carries() {
        let mut sent = message("e-1");
        let headers: Map<String, Value> = (0..50).map(|n| (format!("h{n}"), n.into())).collect();
        sent.headers = Some(RawJson::trusted(Value::Object(headers).to_string()));
        let entry = make(false).entry(0, &sent).unwrap();
        assert!(entry.attributes.len() <= 10, "{:?}", entry.attributes);
        let (_, rest) = entry.attributes.iter().find(|(name, _)| name == REST).unwrap();
        let rest: Map<String, Value> = serde_json::from_str(rest).unwrap();
        assert_eq!(rest["h49"], "49");
        assert_eq!(rest["postroom-attempt"], "5");
        sent.tenant_id = Some(String::new());
        let entry = make(false).entry(0, &sent).unwrap();
        assert!(entry.attributes.iter().all(|(_, value)| !value.is_empty()));
    }

    #[test]
    fn identifiers_are_kept_where_they_are_allowed_and_hashed_where_not() {
        for good in
            ["e-1", "018f0000-0000-7000-8000-000000000001", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"]
        {
            assert_eq!(identifier(good), good);
        }
        for bad in ["", "two words", "grün", "a\n", &"x".repeat(129)] {
            assert_eq!(identifier(bad).len(), 64, "{bad}");
        }
        let hash = "a03f1d611645eb53ad16c1af546ca0792dc884505bab57ede80f4dad6b911d3a";
        assert_eq!(identifier("two words"), hash);
    }

    #[test]
    fn order_is_kept_by_the_ordering_key_or_by_the_stream() {
        let mut sent = message("e-1");
        let group = |sent: &Message| make(true).entry(0, sent).unwrap().fifo.unwrap().group;
        assert_eq!(group(&sent), "order-1");
        sent.ordering_key = Some("k".to_owned());
        assert_eq!(group(&sent), "k");
        sent.ordering_key = Some(String::new());
        sent.stream_id = String::new();
        assert_eq!(group(&sent), "e-1");
        assert_eq!(make(false).entry(0, &sent).unwrap().fifo, None);
    }

    #[test]
    fn what_the_outbox_tells_apart_is_no_repetition() {
        let id = |sent: &Message| make(true).entry(0, sent).unwrap().fifo.unwrap().deduplication;
        assert_eq!(id(&message("e-1")), "test:contract/order-1/e-1");
        assert_eq!(id(&Message { copy: 1, ..message("e-1") }), "test:contract/order-1/e-1/1");
    }

    #[test]
    fn what_xml_cannot_hold_is_rejected() {
        let mut bad = message("e-1");
        bad.payload = RawJson::trusted("\"\u{ffff}\"");
        assert!(matches!(make(false).entry(0, &bad), Err(Outcome::Reject { .. })));
        let mut bad = message("e-1");
        bad.tenant_id = Some("a\0b".to_owned());
        let Err(Outcome::Reject { error }) = make(false).entry(0, &bad) else { panic!() };
        assert!(error.starts_with("postroom-tenant holds"), "{error}");
        let mut good = message("e-1");
        good.payload = RawJson::trusted("\"\u{1f600}\\u0000\"");
        assert!(make(false).entry(0, &good).is_ok());
    }

    #[test]
    fn requests_hold_ten_entries_and_256_kib_and_what_is_larger_goes_alone() {
        let shape = |sizes: &[usize]| {
            let entries = sizes.iter().enumerate().map(|(index, size)| sized(index, *size));
            requests(entries.collect()).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(shape(&[1; 25]), [10, 10, 5]);
        assert_eq!(shape(&[100 << 10, 100 << 10, 56 << 10, 1]), [3, 1]);
        assert_eq!(shape(&[1, 900 << 10, 1, 1]), [1, 1, 2]);
        assert_eq!(shape(&[]), [0; 0]);
    }
}
