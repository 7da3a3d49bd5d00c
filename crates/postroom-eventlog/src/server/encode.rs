//! Writes events as the wire has them.
//!
//! A catch-up is bound by this. The generated code needs a map of strings for each event; this
//! writes the same bytes from the record itself.

use super::wire::{BINARY, JSON};
use crate::RecordedEvent;
use crate::proto::shared::{UuidOption, uuid_option};
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

/// How a client wants ids of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IdForm {
    Structured,
    Text,
}

impl IdForm {
    /// What a request asks for; text where it asks for nothing.
    pub(crate) fn of(option: Option<&UuidOption>) -> Self {
        match option.and_then(|option| option.content.as_ref()) {
            Some(uuid_option::Content::Structured(_)) => Self::Structured,
            Some(uuid_option::Content::String(_)) | None => Self::Text,
        }
    }
}

// The tags of `RecordedEvent`: the number of the field, and how its value is written.
const ID: u8 = delimited(1);
const STREAM: u8 = delimited(2);
const REVISION: u8 = number(3);
const PREPARE: u8 = number(4);
const COMMIT: u8 = number(5);
const METADATA: u8 = delimited(6);
const CUSTOM_METADATA: u8 = delimited(7);
const DATA: u8 = delimited(8);

/// The length of an id as text.
const ID_TEXT: usize = 36;

const fn delimited(field: u8) -> u8 {
    field << 3 | 2
}

const fn number(field: u8) -> u8 {
    field << 3
}

/// Writes events one after another into a buffer that they share.
#[derive(Debug)]
pub(crate) struct EventEncoder {
    form: IdForm,
    buffer: BytesMut,
}

impl EventEncoder {
    pub(crate) fn new(form: IdForm) -> Self {
        Self { form, buffer: BytesMut::new() }
    }

    /// Makes room for these many bytes at once, so that the events of a page share one allocation.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    /// About how many bytes an event takes.
    pub(crate) fn size(event: &RecordedEvent) -> usize {
        const REST: usize = 256;
        let head = event.head();
        head.stream().len()
            + head.event_type().len()
            + head.metadata().len()
            + head.data().len()
            + REST
    }

    /// The bytes of a `RecordedEvent`.
    pub(crate) fn encode(&mut self, event: &RecordedEvent) -> Bytes {
        let buffer = &mut self.buffer;
        put_id(buffer, self.form, event);
        let stream = event.stream().as_bytes();
        buffer.put_u8(STREAM);
        // The identifier is a message with the name in its third field.
        encode_varint(field_len(stream.len()) as u64, buffer);
        put_bytes(buffer, delimited(3), stream);
        put_number(buffer, REVISION, event.revision());
        put_number(buffer, PREPARE, event.position());
        put_number(buffer, COMMIT, event.position());
        let content_type = if event.is_json() { JSON } else { BINARY };
        put_entry(buffer, "content-type", content_type.as_bytes());
        let mut digits = [0; 20];
        put_entry(buffer, "created", decimal(event.created_ticks(), &mut digits));
        put_entry(buffer, "type", event.event_type().as_bytes());
        put_filled(buffer, CUSTOM_METADATA, &event.metadata());
        put_filled(buffer, DATA, &event.data());
        buffer.split().freeze()
    }
}

fn put_id(buffer: &mut BytesMut, form: IdForm, event: &RecordedEvent) {
    buffer.put_u8(ID);
    match form {
        IdForm::Text => {
            encode_varint(field_len(ID_TEXT) as u64, buffer);
            let mut text = [0; ID_TEXT];
            put_bytes(
                buffer,
                delimited(2),
                event.id().hyphenated().encode_lower(&mut text).as_bytes(),
            );
        }
        IdForm::Structured => {
            let (high, low) = event.id().as_u64_pair();
            let halves = number_len(high) + number_len(low);
            encode_varint(field_len(halves) as u64, buffer);
            buffer.put_u8(delimited(1));
            encode_varint(halves as u64, buffer);
            put_number(buffer, number(1), high);
            put_number(buffer, number(2), low);
        }
    }
}

/// The length of a field with as many bytes, with its tag and length.
fn field_len(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

/// The length of a field with a number, which is left out if it is zero.
fn number_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + encoded_len_varint(value) }
}

fn put_number(buffer: &mut BytesMut, tag: u8, value: u64) {
    if value != 0 {
        buffer.put_u8(tag);
        encode_varint(value, buffer);
    }
}

fn put_bytes(buffer: &mut BytesMut, tag: u8, bytes: &[u8]) {
    buffer.put_u8(tag);
    encode_varint(bytes.len() as u64, buffer);
    buffer.put_slice(bytes);
}

/// A field that is left out if it is empty.
fn put_filled(buffer: &mut BytesMut, tag: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(buffer, tag, bytes);
    }
}

/// An entry of the metadata map.
fn put_entry(buffer: &mut BytesMut, name: &str, value: &[u8]) {
    let value_len = if value.is_empty() { 0 } else { field_len(value.len()) };
    buffer.put_u8(METADATA);
    encode_varint((field_len(name.len()) + value_len) as u64, buffer);
    put_bytes(buffer, delimited(1), name.as_bytes());
    put_filled(buffer, delimited(2), value);
}

/// A number as text, without an allocation.
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::{NO_NUMBER, Parts};
    use crate::proto::shared::{self, uuid};
    use crate::server::wire;
    use ::uuid::Uuid;
    use prost::Message as _;
    use std::collections::BTreeMap;

    fn event(parts: &Parts<'_>) -> RecordedEvent {
        parts.event()
    }

    fn parts() -> Parts<'static> {
        Parts {
            is_json: true,
            is_first: true,
            is_last: true,
            position: 70_000,
            durable: 0,
            revision: 12,
            category_number: NO_NUMBER,
            type_number: NO_NUMBER,
            created: 17_635_000_000_000_000,
            id: Uuid::new_v4(),
            stream: "order-1",
            event_type: "order-created",
            metadata: b"{\"who\":\"me\"}",
            data: b"{\"number\":1}",
        }
    }

    /// What the generated code makes of the same event.
    fn generated(event: &RecordedEvent, form: IdForm) -> Vec<u8> {
        let id = match form {
            IdForm::Structured => wire::structured(event.id()),
            IdForm::Text => {
                shared::Uuid { value: Some(uuid::Value::String(event.id().to_string())) }
            }
        };
        let content_type = if event.is_json() { JSON } else { BINARY };
        let metadata = BTreeMap::from([
            ("type".to_owned(), event.event_type().to_owned()),
            ("content-type".to_owned(), content_type.to_owned()),
            ("created".to_owned(), event.created_ticks().to_string()),
        ]);
        let message = shared::RecordedEvent {
            id: Some(id),
            stream_identifier: Some(wire::identifier(event.stream())),
            stream_revision: event.revision(),
            prepare_position: event.position(),
            commit_position: event.position(),
            metadata,
            custom_metadata: event.metadata(),
            data: event.data(),
        };
        message.encode_to_vec()
    }

    #[test]
    fn the_bytes_are_those_of_the_generated_code() {
        let long = vec![b'x'; 70_000];
        let longest = "s".repeat(4_000);
        let events = [
            event(&parts()),
            event(&Parts { is_json: false, metadata: b"", data: b"", ..parts() }),
            event(&Parts { revision: 0, position: 0, created: 0, event_type: "", ..parts() }),
            event(&Parts { data: &long, stream: &longest, revision: u64::MAX, ..parts() }),
            event(&Parts { id: Uuid::nil(), ..parts() }),
            event(&Parts { id: Uuid::from_u64_pair(0, 5), created: u64::MAX, ..parts() }),
        ];
        for form in [IdForm::Structured, IdForm::Text] {
            let mut encoder = EventEncoder::new(form);
            for event in &events {
                assert_eq!(encoder.encode(event), generated(event, form), "{event:?} {form:?}");
            }
        }
    }
}
