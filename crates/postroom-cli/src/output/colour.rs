//! Colour, for people in front of a terminal.

use std::io::{self, IsTerminal};

/// A colour that every terminal has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Blue,
}

impl Colour {
    /// The text in this colour.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The colour of a status, or of a check's result; what is nothing special has none.
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word {
            "SENT" | "ok" => Some(Self::Green),
            "FAILED" | "warning" => Some(Self::Yellow),
            "DEAD" | "FAULT" => Some(Self::Red),
            "CLAIMED" => Some(Self::Blue),
            _ => None,
        }
    }
}

/// Whether standard output is a terminal whose user wants colour.
pub(crate) fn is_wanted() -> bool {
    io::stdout().is_terminal() && is_allowed(|name| std::env::var(name).ok())
}

fn is_allowed(environment: impl Fn(&str) -> Option<String>) -> bool {
    let is_refused = environment("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && environment("TERM").as_deref() != Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_is_obeyed() {
        let with = |variable: &'static str, value: &'static str| {
            is_allowed(move |name| (name == variable).then(|| value.to_owned()))
        };
        assert!(with("TERM", "xterm"));
        assert!(with("NO_COLOR", ""), "set to nothing is not set");
        assert!(!with("NO_COLOR", "1"));
        assert!(!with("TERM", "dumb"));
    }
}
