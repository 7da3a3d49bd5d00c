//! How people name one message: by its id, the beginning of its id, or its event id.

use postroom_core::{IdPrefix, MessageId};
use std::fmt;
use std::str::FromStr;

/// A name for one message, as it was typed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Named {
    text: String,
    id: MessageId,
    prefix: IdPrefix,
}

impl Named {
    /// What was typed: an event id, if it is one.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is a whole id, which no two messages of one kind of table have.
    pub(crate) fn is_whole_id(&self) -> bool {
        self.id.as_uuid().is_some()
    }

    /// The id that is written so.
    pub(crate) fn id(&self) -> &MessageId {
        &self.id
    }

    /// What ids may begin with.
    pub(crate) fn prefix(&self) -> &IdPrefix {
        &self.prefix
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected a message's id, the beginning of one, or an event id, as \
                                `postroom messages list` shows them";
        if text.trim().is_empty() {
            return Err(EXPECTED.to_owned());
        }
        let refused = |error| format!("{EXPECTED}: {error}");
        let (id, prefix) = (text.parse().map_err(refused)?, text.parse().map_err(refused)?);
        Ok(Self { text: text.to_owned(), id, prefix })
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_id_the_beginning_of_one_or_an_event_id() {
        for text in ["01a1e1ac-b8ca-725d-b907-96cdba7a789c", "01a1e1ac-b", "order-7"] {
            let named: Named = text.parse().unwrap();
            assert_eq!((named.as_str(), named.prefix().as_str()), (text, text));
            assert_eq!(*named.id(), MessageId::trusted(text));
        }
        for bad in ["", "  ", "01a1\n", &"x".repeat(601)] {
            let error = bad.parse::<Named>().unwrap_err();
            assert!(error.starts_with("expected a message's id"), "{error}");
        }
    }
}
