//! Messages to bytes and back.

use bytes::Buf;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{self, BufferSettings, DecodeBuf, EncodeBuf};

/// The most fields of one message, not counting those of messages in it. An empty field takes two
/// bytes on the wire and a hundred times that in memory, so the size of a message is not enough of
/// a limit.
const FIELDS_MAX: usize = 100_000;
/// How much is encoded before it is handed to the transport.
const BUFFER: usize = 32 << 10;

/// The codec of all services.
#[derive(Debug)]
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> codec::Codec for Codec<T, U>
where
    T: Message + 'static,
    U: Message + Default + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoder<T>;
    type Decoder = Decoder<U>;

    fn encoder(&mut self) -> Encoder<T> {
        Encoder(PhantomData)
    }

    fn decoder(&mut self) -> Decoder<U> {
        Decoder(PhantomData)
    }
}

/// Encodes messages.
#[derive(Debug)]
pub(crate) struct Encoder<T>(PhantomData<T>);

impl<T: Message> codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buffer).map_err(|error| Status::internal(format!("encoding: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

/// Decodes messages.
#[derive(Debug)]
pub(crate) struct Decoder<U>(PhantomData<U>);

impl<U: Message + Default> codec::Decoder for Decoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if has_too_many_fields(buffer.chunk()) {
            let text = format!("a message may have at most {FIELDS_MAX} fields");
            return Err(Status::invalid_argument(text));
        }
        let malformed = |error| Status::invalid_argument(format!("a malformed message: {error}"));
        U::decode(buffer).map(Some).map_err(malformed)
    }
}

/// Whether a message has more fields than it may. One that is malformed is left to the decoder.
fn has_too_many_fields(mut bytes: &[u8]) -> bool {
    let mut fields = 0;
    while let Ok((_, wire_type)) = decode_key(&mut bytes) {
        fields += 1;
        if fields > FIELDS_MAX {
            return true;
        }
        let length = match wire_type {
            WireType::Varint => match decode_varint(&mut bytes) {
                Ok(_) => 0,
                Err(_) => return false,
            },
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => match decode_varint(&mut bytes) {
                Ok(length) => length,
                Err(_) => return false,
            },
            // Their ends are fields of their own here.
            WireType::StartGroup | WireType::EndGroup => 0,
        };
        match usize::try_from(length) {
            Ok(length) if length <= bytes.len() => bytes.advance(length),
            Ok(_) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::shared::ProposedMessage;
    use crate::proto::streams::BatchAppendReq;

    #[test]
    fn a_small_message_of_countless_empty_events_is_found_out() {
        let mut request = BatchAppendReq {
            proposed_messages: vec![ProposedMessage::default(); FIELDS_MAX],
            ..Default::default()
        };
        assert!(!has_too_many_fields(&request.encode_to_vec()));
        request.is_final = true;
        assert!(has_too_many_fields(&request.encode_to_vec()));
    }

    #[test]
    fn malformed_bytes_are_left_to_the_decoder() {
        for bytes in [&b"\xff"[..], b"\x0a\xff", b"\x0a\x05ab", b"\x09ab", b"\x0b", b"", b"\x07"] {
            assert!(!has_too_many_fields(bytes));
        }
    }
}
