//! Which events of the whole log a reader wants.

use crate::event::RecordedEvent;
use fancy_regex::{Regex, RegexBuilder};

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

#[derive(Clone, Debug)]
enum Matches {
    Prefixes(Vec<String>),
    Pattern(Regex),
}

/// The largest compiled pattern, and the most steps back that matching takes: a pattern comes from a
/// client, and must cost the server neither its memory nor its time.
const PATTERN_LIMIT: usize = 1 << 20;
const BACKTRACK_LIMIT: usize = 10_000;

impl Filter {
    /// Events whose type or stream begins with one of these.
    #[must_use]
    pub fn prefixes(on: FilterOn, prefixes: Vec<String>) -> Self {
        Self { on, matches: Matches::Prefixes(prefixes) }
    }

    /// Events whose type or stream matches a regular expression.
    ///
    /// # Errors
    /// When it is none, or too large.
    pub fn pattern(on: FilterOn, pattern: &str) -> Result<Self, String> {
        // With look-around: the client for Python excludes system events by it.
        let built = RegexBuilder::new(pattern)
            .delegate_size_limit(PATTERN_LIMIT)
            .backtrack_limit(BACKTRACK_LIMIT)
            .build();
        built
            .map(|pattern| Self { on, matches: Matches::Pattern(pattern) })
            .map_err(|error| format!("the filter's regular expression: {error}"))
    }

    /// Whether this event is wanted. A name on which the pattern takes too many steps is not.
    #[must_use]
    pub fn accepts(&self, event: &RecordedEvent) -> bool {
        let text = match self.on {
            FilterOn::EventType => event.event_type(),
            FilterOn::Stream => event.stream(),
        };
        match &self.matches {
            Matches::Prefixes(prefixes) => prefixes.iter().any(|prefix| text.starts_with(prefix)),
            Matches::Pattern(pattern) => pattern.is_match(text).unwrap_or(false),
        }
    }
}
