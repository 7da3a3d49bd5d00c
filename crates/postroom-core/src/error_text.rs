//! Error text as it is recorded: short, and on one place.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
