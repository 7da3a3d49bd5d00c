//! Which events of the whole log a reader wants.

mod pattern;

use crate::event::RecordedEvent;
use pattern::Pattern;
use std::sync::Arc;

/// What a filter looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FilterOn {
    /// The type of an event.
    EventType,
    /// The name of its stream.
    Stream,
}

/// Which events a reader wants.
#[derive(Clone, Debug)]
pub struct Filter {
    on: FilterOn,
    matches: Matches,
}

// Clones share one pattern, and with it the memory that it matches with.
#[derive(Clone, Debug)]
enum Matches {
    Prefixes(Arc<[String]>),
    Pattern(Arc<Pattern>),
}

impl Filter {
    /// Events whose type or stream begins with one of these.
    #[must_use]
    pub fn prefixes(on: FilterOn, prefixes: Vec<String>) -> Self {
        Self { on, matches: Matches::Prefixes(prefixes.into()) }
    }

    /// Events whose type or stream matches a regular expression anywhere, unless `^` and `$` say
    /// where.
    ///
    /// The syntax is that of the [`regex`](https://docs.rs/regex/latest/regex/#syntax) crate.
    /// Matching takes a time that grows only linearly with the length of a name. Besides, one form
    /// of look-ahead is understood, by which clients exclude events: `^(?!X)`, also several times,
    /// at the very beginning, with anything but a `|` outside of groups after it. Other look-around
    /// and back-references are refused. So is what would mean something else than in .NET, which
    /// patterns for KurrentDB are written for: the `x` flag, and `[`, `&&`, `--` or `~~` inside a
    /// class where they are not escaped. `$` matches at the very end of a name only.
    ///
    /// Compiling takes up to some tens of milliseconds, which is too long for an async thread.
    ///
    /// # Errors
    /// When it is none, is not supported, has more than 4 KiB, or has more than 1 MiB once it is
    /// compiled. The text is meant for the client, and does not repeat the pattern.
    pub fn pattern(on: FilterOn, pattern: &str) -> Result<Self, String> {
        Pattern::new(pattern)
            .map(|pattern| Self { on, matches: Matches::Pattern(Arc::new(pattern)) })
            .map_err(|error| format!("the filter's regular expression: {error}"))
    }

    /// Whether this event is wanted.
    #[must_use]
    pub fn accepts(&self, event: &RecordedEvent) -> bool {
        let text = match self.on {
            FilterOn::EventType => event.event_type(),
            FilterOn::Stream => event.stream(),
        };
        match &self.matches {
            Matches::Prefixes(prefixes) => prefixes.iter().any(|prefix| text.starts_with(prefix)),
            Matches::Pattern(pattern) => pattern.is_match(text),
        }
    }
}
