//! What identifies a message.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The longest id of a message that is accepted as input, in bytes.
pub const MESSAGE_ID_BYTES: usize = 600;

/// The id of one message: the key of its row. Postroom's own tables have uuids; a table that was
/// there before may have any key, which is carried as text.
///
/// There is one form of each id: a text that is a uuid as this program writes them (hyphenated, in
/// lower case) is always `Uuid`. [`trusted`](Self::trusted) and [`FromStr`] keep to that, so
/// make texts with one of them. A uuid that is written differently stays the text that it is: where
/// keys are texts, only that text finds its row.
///
/// Ids are in the order of their texts, byte by byte.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum MessageId {
    /// A uuid.
    Uuid(Uuid),
    /// Any other key, as text.
    Text(Arc<str>),
}

/// Why a text is no message's id, nor the beginning of one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MessageIdError {
    /// There is no character in it.
    #[error("the id of a message cannot be empty")]
    Empty,
    /// It is longer than [`MESSAGE_ID_BYTES`].
    #[error("the id has {0} bytes; the id of a message has at most {MESSAGE_ID_BYTES}")]
    TooLong(usize),
    /// It has a control character.
    #[error(
        "the id has a control character (at byte {0}), which the id of a message cannot have; was a line \
         break copied with it?"
    )]
    ControlCharacter(usize),
}

impl MessageId {
    /// The id that a database holds as this text. Nothing is checked: a row that is there has the
    /// id that it has.
    #[must_use]
    pub fn trusted(text: &str) -> Self {
        canonical_uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }

    /// The uuid that it is, or that its text spells in another way, such as in upper case: what
    /// finds the message where keys are uuids.
    #[must_use]
    pub fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(uuid) => Some(*uuid),
            Self::Text(text) => Uuid::parse_str(text).ok(),
        }
    }
}

/// The uuid that is written exactly so.
fn canonical_uuid(text: &str) -> Option<Uuid> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    let uuid = Uuid::parse_str(text).ok()?;
    let mut written = [0; Hyphenated::LENGTH];
    (uuid.as_hyphenated().encode_lower(&mut written) == text).then_some(uuid)
}

/// Checks what was typed for an id, or for the beginning of one.
fn check(text: &str) -> Result<(), MessageIdError> {
    if text.is_empty() {
        return Err(MessageIdError::Empty);
    }
    if text.len() > MESSAGE_ID_BYTES {
        return Err(MessageIdError::TooLong(text.len()));
    }
    text.find(char::is_control).map_or(Ok(()), |at| Err(MessageIdError::ControlCharacter(at)))
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => {
                f.pad(uuid.as_hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH]))
            }
            Self::Text(text) => f.pad(text),
        }
    }
}

impl FromStr for MessageId {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        check(text)?;
        Ok(Self::trusted(text))
    }
}

impl From<Uuid> for MessageId {
    fn from(uuid: Uuid) -> Self {
        Self::Uuid(uuid)
    }
}

impl Ord for MessageId {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Uuid(one), Self::Uuid(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Uuid(uuid), Self::Text(text)) => cmp_as_text(uuid, text),
            (Self::Text(text), Self::Uuid(uuid)) => cmp_as_text(uuid, text).reverse(),
        }
    }
}

impl PartialOrd for MessageId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn cmp_as_text(uuid: &Uuid, text: &str) -> Ordering {
    let mut written = [0; Hyphenated::LENGTH];
    (*uuid.as_hyphenated().encode_lower(&mut written)).cmp(text)
}

impl PartialEq<Uuid> for MessageId {
    fn eq(&self, uuid: &Uuid) -> bool {
        matches!(self, Self::Uuid(own) if own == uuid)
    }
}

impl PartialEq<MessageId> for Uuid {
    fn eq(&self, id: &MessageId) -> bool {
        id == self
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The beginning of messages' ids, by which people name a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IdPrefix(Box<str>);

impl IdPrefix {
    /// What ids that are texts begin with.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The uuids that begin so, however their digits are grouped; `None` when no uuid does.
    #[must_use]
    pub fn uuids(&self) -> Option<RangeInclusive<Uuid>> {
        let digits: String = self.0.chars().filter(|c| *c != '-').collect();
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > 32 || !are_digits {
            return None;
        }
        let first = u128::from_str_radix(&format!("{digits:0<32}"), 16).ok()?;
        let last = u128::from_str_radix(&format!("{digits:f<32}"), 16).ok()?;
        Some(Uuid::from_u128(first)..=Uuid::from_u128(last))
    }

    /// Whether an id begins so.
    #[must_use]
    pub fn matches(&self, id: &MessageId) -> bool {
        match id {
            MessageId::Uuid(uuid) => self.uuids().is_some_and(|uuids| uuids.contains(uuid)),
            MessageId::Text(text) => text.starts_with(self.as_str()),
        }
    }
}

impl FromStr for IdPrefix {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        check(text)?;
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANONICAL: &str = "01a1e1ac-b8ca-725d-b907-96cdba7a789c";

    fn id(text: &str) -> MessageId {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_uuid_in_canonical_form_is_a_uuid() {
        let uuid = Uuid::parse_str(CANONICAL).unwrap();
        assert_eq!(id(CANONICAL), MessageId::Uuid(uuid));
        assert_eq!(id(CANONICAL), uuid);
        assert_eq!(uuid, id(CANONICAL));
        assert_eq!(MessageId::from(uuid), id(CANONICAL));
        let others = [
            CANONICAL.to_uppercase(),
            uuid.simple().to_string(),
            uuid.urn().to_string(),
            uuid.braced().to_string(),
        ];
        for text in others {
            assert_eq!(id(&text), MessageId::Text(text.as_str().into()), "{text}");
            assert_ne!(id(&text), uuid);
            assert_eq!(id(&text).as_uuid(), Some(uuid), "{text}");
        }
        for text in ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "7", "a:b", "ä", " "] {
            assert_eq!(id(text), MessageId::Text(text.into()));
            assert_eq!(id(text).as_uuid(), None, "{text}");
        }
    }

    #[test]
    fn an_id_is_shown_as_it_was_read() {
        for text in [CANONICAL, &CANONICAL.to_uppercase(), "order:7", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]
        {
            assert_eq!(id(text).to_string(), text);
            assert_eq!(MessageId::trusted(text), id(text));
            assert_eq!(format!("{:<40}|", id(text)), format!("{text:<40}|"));
        }
    }

    #[test]
    fn ids_are_in_the_order_of_their_texts() {
        let other = "f1a1e1ac-b8ca-725d-b907-96cdba7a789c";
        let mut texts = ["a", CANONICAL, "z", other, "01A", "01b", "", &CANONICAL.to_uppercase()];
        let mut ids: Vec<MessageId> = texts.iter().map(|text| MessageId::trusted(text)).collect();
        texts.sort_unstable();
        ids.sort_unstable();
        assert_eq!(ids.iter().map(MessageId::to_string).collect::<Vec<_>>(), texts);
    }

    #[test]
    fn what_cannot_be_an_id_is_refused() {
        let refused = |text: &str| text.parse::<MessageId>().unwrap_err();
        assert_eq!(refused(""), MessageIdError::Empty);
        assert_eq!(refused("ab\n"), MessageIdError::ControlCharacter(2));
        assert_eq!(refused("ä\u{85}"), MessageIdError::ControlCharacter(2));
        assert_eq!(id(&"x".repeat(MESSAGE_ID_BYTES)).to_string().len(), MESSAGE_ID_BYTES);
        let long = "x".repeat(MESSAGE_ID_BYTES + 1);
        assert_eq!(refused(&long), MessageIdError::TooLong(MESSAGE_ID_BYTES + 1));
        assert!(long.parse::<IdPrefix>().is_err());
    }

    #[test]
    fn in_json_an_id_is_a_string() {
        for text in [CANONICAL, "order:7"] {
            let json = format!("\"{text}\"");
            assert_eq!(serde_json::to_string(&id(text)).unwrap(), json);
            assert_eq!(serde_json::from_str::<MessageId>(&json).unwrap(), id(text));
        }
        assert!(serde_json::from_str::<MessageId>("\"\"").is_err());
        assert!(serde_json::from_str::<MessageId>("7").is_err());
    }

    fn uuids(text: &str) -> Option<(String, String)> {
        let range = text.parse::<IdPrefix>().unwrap().uuids()?;
        Some((range.start().to_string(), range.end().to_string()))
    }

    #[test]
    fn the_beginning_of_an_id_stands_for_all_uuids_that_begin_so() {
        assert_eq!(uuids(CANONICAL), Some((CANONICAL.to_owned(), CANONICAL.to_owned())));
        let first = "01a1e1ac-b000-0000-0000-000000000000".to_owned();
        let last = "01a1e1ac-bfff-ffff-ffff-ffffffffffff".to_owned();
        for text in ["01a1e1ac-b", "01a1e1acb", "01A1E1AC-B"] {
            assert_eq!(uuids(text), Some((first.clone(), last.clone())), "{text}");
        }
        assert_eq!(uuids("order-7"), None);
        assert_eq!(uuids("+1"), None);
        assert_eq!(uuids("--"), None);
        assert_eq!(uuids(&format!("{CANONICAL}0")), None);
    }

    #[test]
    fn an_id_is_matched_by_its_beginning() {
        let matches =
            |prefix: &str, text: &str| prefix.parse::<IdPrefix>().unwrap().matches(&id(text));
        assert!(matches("01A1E1ACB8", CANONICAL));
        assert!(matches("order-", "order-7") && matches("order-7", "order-7"));
        assert!(!matches("Order", "order-7") && !matches("order-77", "order-7"));
        assert!(!matches("order", CANONICAL) && !matches("01a2", CANONICAL));
    }
}
