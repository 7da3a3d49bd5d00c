//! JSON that is carried, not parsed.

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// JSON text as it came from the database or the caller. It passes through Postroom unchanged;
/// [`RawJson::check`] is for the edge where it comes in.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct RawJson(Box<str>);

/// Why a text is no JSON that every store can keep.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JsonFault {
    /// Not UTF-8.
    #[error("is not valid UTF-8 (first bad byte at offset {0})")]
    Utf8(usize),
    /// Not JSON, too deep, or a number no double can hold.
    #[error("is not acceptable JSON: {0}")]
    Syntax(String),
}

impl RawJson {
    /// Wraps text that is known to be JSON, such as a column of type jsonb.
    pub fn trusted(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty, which no JSON is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.trim_ascii_start().starts_with('{')
    }

    /// Whether the value is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0.trim_ascii() == "null"
    }

    /// Checks bytes from outside: UTF-8, well-formed, at most 128 levels deep, numbers within a
    /// double's range, no `\u0000` (PostgreSQL's jsonb refuses it).
    ///
    /// # Errors
    /// [`JsonFault`] names what is wrong, never the text itself.
    pub fn check(bytes: Vec<u8>) -> Result<Self, JsonFault> {
        let text = String::from_utf8(bytes)
            .map_err(|error| JsonFault::Utf8(error.utf8_error().valid_up_to()))?;
        let mut parser = serde_json::Deserializer::from_str(&text);
        parser
            .deserialize_any(Strict)
            .and_then(|()| parser.end())
            .map_err(|error| JsonFault::Syntax(error.to_string()))?;
        Ok(Self(text.into_boxed_str()))
    }
}

impl fmt::Debug for RawJson {
    /// Payloads stay out of logs, so only the length is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// Walks a document without keeping it.
struct Strict;

impl<'de> serde::de::DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            return Err(E::custom("a string holds \\u0000, which PostgreSQL cannot store"));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Self)?.is_some() {
            map.next_value_seed(Self)?;
        }
        Ok(())
    }
}

impl serde::Serialize for RawJson {
    /// Written as the JSON it is, not as a string.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        RawJson::check(text.as_bytes().to_vec()).expect_err("must be refused").to_string()
    }

    #[test]
    fn good_json_keeps_its_bytes() {
        let text = "{ \"b\":1.50, \"a\":[null,true,\"é\"] }";
        assert_eq!(RawJson::check(text.as_bytes().to_vec()).unwrap().as_str(), text);
    }

    #[test]
    fn each_fault_is_named() {
        assert!(matches!(RawJson::check(vec![b'"', 0xff, b'"']), Err(JsonFault::Utf8(1))));
        assert!(refused("{\"a\":1e400}").contains("out of range"));
        assert!(refused("[\"\\u0000\"]").contains("\\u0000"));
        assert!(refused("{\"\\u0000\":1}").contains("\\u0000"));
        assert!(refused(&"[".repeat(10_000)).contains("recursion"));
        assert!(refused("{} {}").contains("trailing"));
        assert!(refused("").contains("EOF"));
    }

    #[test]
    fn debug_shows_no_content() {
        assert_eq!(format!("{:?}", RawJson::trusted("\"secret\"")), "RawJson(8 bytes)");
    }
}
