//! What happened, in order.

use postroom_core::Token;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One event: when, what in a word, to which relay, claim and message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) at: Duration,
    pub(super) what: &'static str,
    pub(super) relay: Option<usize>,
    pub(super) token: Option<Token>,
    pub(super) seq: Option<i64>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.3} {:<12}", self.at.as_secs_f64(), self.what)?;
        if let Some(relay) = self.relay {
            write!(f, " relay {relay}")?;
        }
        if let Some(seq) = self.seq {
            write!(f, " message {seq}")?;
        }
        if let Some(token) = self.token {
            write!(f, " claim {}", &token.0.simple().to_string()[..8])?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Journal(Vec<Entry>);

impl Journal {
    pub(super) fn push(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How often each word occurs.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for entry in &self.0 {
            *counts.entry(entry.what).or_default() += 1;
        }
        counts
    }

    /// Where two runs part.
    pub(super) fn difference(&self, other: &Self) -> Option<(String, String)> {
        let text = |entry: Option<&Entry>| entry.map_or("nothing".to_owned(), Entry::to_string);
        (0..self.len().max(other.len()))
            .map(|index| (self.0.get(index), other.0.get(index)))
            .find(|(a, b)| a != b)
            .map(|(a, b)| (text(a), text(b)))
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|entry| writeln!(f, "{entry}"))
    }
}
