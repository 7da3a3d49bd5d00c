//! A sink's options as a configuration gives them, read key by key so that every fault is found.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
#[cfg(any(feature = "aws", feature = "slack", feature = "sms"))]
use url::Url;

/// What is wrong with one option.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OptionFault {
    /// The way to the key: `["headers", "x y"]`.
    pub path: Vec<String>,
    /// What is wrong; never the value, which may be a secret.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Takes options one by one and remembers what was wrong with each.
#[derive(Debug)]
pub(crate) struct Options {
    values: Map<String, Value>,
    faults: Vec<OptionFault>,
}

impl Options {
    /// Options to read.
    pub(crate) fn new(values: Map<String, Value>) -> Self {
        Self { values, faults: Vec::new() }
    }

    /// Whether a key is there and was not taken yet.
    #[cfg(any(feature = "email", feature = "postgres", feature = "slack", feature = "sms"))]
    pub(crate) fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Takes a key that must be there. `expected` names its type, for the fault.
    pub(crate) fn required<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Option<T> {
        if !self.values.contains_key(key) {
            self.fault(&[key], format!("is missing: it must be {expected}"), None);
            return None;
        }
        self.optional(key, expected)
    }

    /// Takes a key that may be left out.
    pub(crate) fn optional<T: DeserializeOwned>(&mut self, key: &str, expected: &str) -> Option<T> {
        let value = self.values.remove(key)?;
        let taken = serde_json::from_value(value).ok();
        if taken.is_none() {
            self.fault(&[key], format!("must be {expected}"), None);
        }
        taken
    }

    /// Takes a key that is one of a few words.
    pub(crate) fn choice<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let word: String = self.optional(key, "a string")?;
        let chosen = words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value);
        if chosen.is_none() {
            let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.fault(&[key], format!("must be one of {}", known.join(", ")), None);
        }
        chosen
    }

    /// Takes a key that is a table of its own. Its faults are found like those of the whole.
    pub(crate) fn table<T>(
        &mut self,
        key: &str,
        known: &[&str],
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let values = self.optional(key, "a table")?;
        let mut inner = Self::new(values);
        let taken = read(&mut inner);
        for mut fault in inner.finish(known) {
            fault.path.insert(0, key.to_owned());
            self.faults.push(fault);
        }
        taken
    }

    /// Takes a duration with its unit, such as "500ms", "5s", "15m", "1h" or "7d".
    pub(crate) fn duration(&mut self, key: &str) -> Option<Duration> {
        let text: String = self.optional(key, DURATION)?;
        let duration = parse_duration(&text);
        if duration.is_none() {
            self.fault(&[key], format!("must be {DURATION}"), None);
        }
        duration
    }

    /// Reads an http or https URL that may be left out. Faults never show it: it can be a secret as
    /// a whole. `login` says where a user and password go, which it may not hold.
    #[cfg(any(feature = "aws", feature = "slack", feature = "sms"))]
    pub(crate) fn http_url(&mut self, key: &str, login: Option<&str>) -> Option<Url> {
        let text: String = self.optional(key, "an http or https URL")?;
        let (problem, hint) = match Url::parse(&text) {
            Err(error) => (format!("is no URL: {error}"), None),
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                ("must begin with http:// or https://".to_owned(), None)
            }
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                ("must not hold a user or password".to_owned(), login.map(str::to_owned))
            }
            Ok(url) => return Some(url),
        };
        self.fault(&[key], problem, hint);
        None
    }

    /// Records a fault.
    pub(crate) fn fault(
        &mut self,
        path: &[&str],
        problem: impl Into<String>,
        hint: Option<String>,
    ) {
        self.faults.push(OptionFault {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            problem: problem.into(),
            hint,
        });
    }

    /// Ends the reading: what no one took is unknown.
    pub(crate) fn finish(mut self, known: &[&str]) -> Vec<OptionFault> {
        let unknown: Vec<String> = self.values.keys().cloned().collect();
        for key in unknown {
            let hint = nearest(&key, known).map_or_else(
                || Some(format!("known here: {}", known.join(", "))).filter(|_| !known.is_empty()),
                |near| Some(format!("did you mean `{near}`?")),
            );
            self.fault(&[&key], "is unknown", hint);
        }
        self.faults
    }
}

const DURATION: &str = "a duration such as \"500ms\", \"5s\", \"15m\", \"1h\" or \"7d\"";

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(milliseconds).map(Duration::from_millis)
}

/// The name among `known` that `word` was most likely meant to be.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let reach = (word.chars().count() / 3).clamp(1, 3);
    known
        .iter()
        .map(|name| (edits(&word.to_lowercase(), &name.to_lowercase()), *name))
        .filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many characters must be inserted, removed or replaced to turn `from` into `to`.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit() {
        assert_eq!(parse_duration("15m"), Some(Duration::from_secs(900)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        for bad in ["", "5", "s", "1.5s", "1h30m", "-1s", "99999999999999999999d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_slip_finds_its_key_and_a_stranger_finds_none() {
        let known = ["url", "timeout", "headers", "concurrency"];
        assert_eq!(nearest("concurency", &known), Some("concurrency"));
        assert_eq!(nearest("time_out", &known), Some("timeout"));
        assert_eq!(nearest("URI", &known), Some("url"));
        assert_eq!(nearest("breaker", &known), None);
    }
}
