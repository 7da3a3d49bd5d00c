//! Error text as it is recorded: short, and on one place.

/// The most characters of an error that are recorded on a message.
pub const ERROR_TEXT_CHARS: usize = 5_000;

/// Cuts an error text to [`ERROR_TEXT_CHARS`], at a character boundary, and removes NUL, which
/// PostgreSQL cannot store.
#[must_use]
pub fn clip_error(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(ERROR_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
