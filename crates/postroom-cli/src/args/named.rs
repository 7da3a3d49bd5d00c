//! How people name one message: by its id, the beginning of its id, or its event id.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use uuid::Uuid;

/// The longest event id that a message can have.
const CHARS_MAX: usize = 100;

/// A name for one message, as it was typed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Named(String);

impl Named {
    /// What was typed: an event id, if it is one.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a whole id, which no two messages have.
    pub(crate) fn is_whole_id(&self) -> bool {
        self.ids().is_some_and(|ids| ids.start() == ids.end())
    }

    /// The ids that begin so; `None` when no id does.
    pub(crate) fn ids(&self) -> Option<RangeInclusive<Uuid>> {
        let digits: String = self.0.chars().filter(|c| *c != '-').collect();
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() > 32 || !are_digits {
            return None;
        }
        let first = u128::from_str_radix(&format!("{digits:0<32}"), 16).ok()?;
        let last = u128::from_str_radix(&format!("{digits:f<32}"), 16).ok()?;
        Some(Uuid::from_u128(first)..=Uuid::from_u128(last))
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() || text.chars().count() > CHARS_MAX {
            return Err("expected a message's id, the beginning of one, or an event id, as \
                        `postroom messages list` shows them"
                .to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Option<(String, String)> {
        let range = text.parse::<Named>().unwrap().ids()?;
        Some((range.start().to_string(), range.end().to_string()))
    }

    #[test]
    fn the_beginning_of_an_id_stands_for_all_ids_that_begin_so() {
        let whole = "01a1e1ac-b8ca-725d-b907-96cdba7a789c";
        assert_eq!(ids(whole), Some((whole.to_owned(), whole.to_owned())));
        let first = "01a1e1ac-b000-0000-0000-000000000000".to_owned();
        let last = "01a1e1ac-bfff-ffff-ffff-ffffffffffff".to_owned();
        for text in ["01a1e1ac-b", "01a1e1acb", "01A1E1AC-B"] {
            assert_eq!(ids(text), Some((first.clone(), last.clone())), "{text}");
        }
        assert_eq!(ids("order-7"), None);
        assert_eq!(ids("+1"), None);
        assert_eq!(ids("--"), None);
        assert_eq!(ids(&format!("{whole}0")), None);
        assert!("".parse::<Named>().is_err());
        assert!("x".repeat(101).parse::<Named>().is_err());
    }
}
