//! The words of errors, as far as they are passed on.

use std::error::Error;

/// The most of a service's own words that is passed on.
const SAID_CHARS_MAX: usize = 300;

/// The words of the last cause, which says most.
pub(crate) fn root(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    short(&last.to_string())
}

/// As much of a text as is passed on.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(SAID_CHARS_MAX).collect()
}
