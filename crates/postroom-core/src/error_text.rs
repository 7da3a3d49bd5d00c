//! Error text as it is recorded: short, and on one place.

use std::error::Error;

/// The most characters of an error that are recorded on a message.
pub const ERROR_TEXT_CHARS: usize = 5_000;

/// Cuts an error text to [`ERROR_TEXT_CHARS`], at a character boundary, and removes NUL, which
/// PostgreSQL cannot store.
#[must_use]
pub fn clip_error(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(ERROR_TEXT_CHARS).collect()
}

/// Cuts a receiver's response to [`RESPONSE_BYTES`](crate::RESPONSE_BYTES), at a character
/// boundary, and removes NUL.
#[must_use]
pub fn clip_response(text: &str) -> String {
    let mut text = text.replace('\0', "");
    text.truncate(text.floor_char_boundary(crate::RESPONSE_BYTES));
    text
}

/// An error with its causes on one line. Some libraries repeat their cause in their own words, and
/// some only put a label before it, so what was said is not said again.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        let is_label =
            error.source().is_some_and(|source| text.contains(core(&source.to_string())));
        if !is_label && !text.contains(core(&said)) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// What an error says behind the mark of its severity.
fn core(said: &str) -> &str {
    said.rsplit_once("ERROR: ").map_or(said, |(_, core)| core)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[test]
    fn a_response_is_cut_by_bytes_at_the_border_of_a_character() {
        let clipped = clip_response(&format!("a{}", "é".repeat(crate::RESPONSE_BYTES)));
        assert_eq!(clipped.len(), crate::RESPONSE_BYTES - 1);
        assert_eq!(clip_response("a\0b"), "ab");
    }

    #[test]
    fn long_text_is_cut_by_characters_not_bytes() {
        let clipped = clip_error(&"é".repeat(ERROR_TEXT_CHARS + 10));
        assert_eq!(clipped.chars().count(), ERROR_TEXT_CHARS);
    }

    #[test]
    fn nul_is_removed() {
        assert_eq!(clip_error("a\0b"), "ab");
    }

    /// What an error says, and its cause.
    #[derive(Debug)]
    struct Wrapped(&'static str, Option<Box<Wrapped>>);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_are_named_once() {
        let of_the_driver = |words| {
            let server = Wrapped("ERROR: no such table", None);
            Wrapped(words, Some(Box::new(Wrapped("db error", Some(Box::new(server))))))
        };
        let text = with_causes(&of_the_driver("reading (no such table)"));
        assert_eq!(text, "reading (no such table)");
        let text = with_causes(&of_the_driver("reading failed"));
        assert_eq!(text, "reading failed: db error: ERROR: no such table");
    }
}
