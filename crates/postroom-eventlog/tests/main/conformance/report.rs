//! What a client showed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What became of one feature; the error is the client's own words.
pub(crate) type Outcome = Result<(), String>;

/// What became of each feature that a client has.
#[derive(Debug, Default)]
pub(crate) struct Report(BTreeMap<String, Outcome>);

impl Report {
    /// Records what became of a feature.
    pub(crate) fn add(&mut self, feature: &str, outcome: Outcome) {
        let before = self.0.insert(feature.to_owned(), outcome);
        assert!(before.is_none(), "{feature} was reported twice");
    }

    /// What became of a feature; `None` where the client has no such thing.
    pub(crate) fn outcome(&self, feature: &str) -> Option<&Outcome> {
        self.0.get(feature)
    }

    /// The names of the features that it has.
    pub(crate) fn features(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The features that failed, a line each; empty where there are none.
    pub(crate) fn failures(&self) -> String {
        let mut text = String::new();
        for (feature, outcome) in &self.0 {
            if let Err(error) = outcome {
                let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
                // Writing to a `String` cannot fail.
                let _ = writeln!(text, "  {feature}: {error}");
            }
        }
        text
    }
}
