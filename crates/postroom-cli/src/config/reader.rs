//! Reads a TOML document section by section and collects every fault on the way.

use super::fault::{Fault, place_of};
use super::interpolate::interpolate;
use super::units;
use postroom_sinks::nearest;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// The text of a configuration, the environment it reads, and what was wrong so far.
pub(crate) struct Document<'a> {
    text: &'a str,
    environment: &'a dyn Fn(&str) -> Option<String>,
    faults: RefCell<Vec<Fault>>,
    /// Where the syntax first goes wrong: what is read after that may not be what was meant.
    broken_from: Cell<usize>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(text: &'a str, environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { text, environment, faults: RefCell::default(), broken_from: Cell::new(usize::MAX) }
    }

    /// Parses the text; what cannot be parsed is left out and reported, once per line.
    pub(crate) fn parse(&self) -> DeTable<'a> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let mut first = usize::MAX;
        let mut last_line = None;
        for error in errors {
            let offset = error.span().map_or(0, |span| span.start);
            first = first.min(offset);
            let line = self.text.get(..offset).map(|before| before.matches('\n').count());
            if line.is_none() || line != last_line {
                self.fault(offset, error.message().to_owned(), self.syntax_hint(offset));
            }
            last_line = line;
        }
        self.broken_from.set(first);
        table.into_inner()
    }

    pub(crate) fn fault(&self, offset: usize, problem: String, hint: Option<String>) {
        if offset >= self.broken_from.get() {
            return;
        }
        let place = place_of(self.text, offset);
        self.faults.borrow_mut().push(Fault { place, problem, hint });
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }

    /// The mistake that `adapter:channel` invites.
    fn syntax_hint(&self, offset: usize) -> Option<String> {
        let start = self.text.get(..offset)?.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(start..)?.lines().next()?;
        (line.starts_with("[integrations.") && line.contains(':') && !line.contains('"'))
            .then(|| "names with `:` need quotes: [integrations.\"webhook:partnerX\"]".to_owned())
    }
}

/// One table of the document.
pub(crate) struct Section<'d> {
    document: &'d Document<'d>,
    /// The way to it, such as `relay.retry`; empty for the document itself.
    name: String,
    /// Where faults of the section as a whole are shown.
    offset: usize,
    table: &'d DeTable<'d>,
}

impl<'d> Section<'d> {
    pub(crate) fn root(document: &'d Document<'d>, table: &'d DeTable<'d>) -> Self {
        Self { document, name: String::new(), offset: 0, table }
    }

    /// Whether it stands in another section.
    pub(crate) fn is_nested(&self) -> bool {
        self.name.contains('.')
    }

    /// Refuses every key but these.
    pub(crate) fn expect_only(&self, known: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = nearest(name, known).map_or_else(
                || format!("known here: {}", known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            let problem = format!("{} is unknown", self.path(&[name]));
            self.document.fault(key.span().start, problem, Some(hint));
        }
    }

    /// The sections in this one, with their names.
    pub(crate) fn sections(&self) -> Vec<(String, Section<'d>)> {
        let names = self.table.keys().map(|key| key.get_ref().to_string());
        names.filter_map(|name| self.section(&name).map(|section| (name, section))).collect()
    }

    pub(crate) fn section(&self, key: &str) -> Option<Section<'d>> {
        let (offset, value) = self.entry(key)?;
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong(key, "a table", None);
            return None;
        };
        Some(Section { document: self.document, name: self.path(&[key]), offset, table })
    }

    pub(crate) fn string(&self, key: &str) -> Option<String> {
        let (_, value) = self.entry(key)?;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong(key, "a string", None);
            return None;
        };
        self.interpolated(&[key], value, text)
    }

    pub(crate) fn boolean(&self, key: &str) -> Option<bool> {
        let (_, value) = self.entry(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong(key, "true or false", None);
        }
        flag
    }

    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let (_, value) = self.entry(key)?;
        let number = value.get_ref().as_integer().and_then(whole);
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let expected = format!("a whole number from {} to {}", range.start(), range.end());
            self.wrong(key, &expected, None);
        }
        number
    }

    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let (_, value) = self.entry(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            self.wrong(key, &expected, None);
        }
        number
    }

    pub(crate) fn duration(&self, key: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let (_, value) = self.entry(key)?;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong(key, units::DURATION_FORM, Some("write it as a string with its unit"));
            return None;
        };
        let text = self.interpolated(&[key], value, text)?;
        let Some(duration) = units::duration(&text) else {
            self.wrong(key, units::DURATION_FORM, None);
            return None;
        };
        if !range.contains(&duration) {
            let [least, most] = [range.start(), range.end()].map(|end| units::show_duration(*end));
            self.wrong(key, &format!("from {least} to {most}"), None);
            return None;
        }
        Some(duration)
    }

    pub(crate) fn size(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let (_, value) = self.entry(key)?;
        let size = match value.get_ref() {
            DeValue::Integer(number) => whole(number),
            DeValue::String(text) => units::size(&self.interpolated(&[key], value, text)?),
            _ => None,
        };
        let Some(size) = size else {
            self.wrong(key, units::SIZE_FORM, None);
            return None;
        };
        if !range.contains(&size) {
            let expected = format!("from {} to {} bytes", range.start(), range.end());
            self.wrong(key, &expected, None);
            return None;
        }
        Some(size)
    }

    /// A value of any type, for those who know their own options.
    pub(crate) fn json(&self, key: &str) -> Option<Value> {
        let (_, value) = self.entry(key)?;
        self.as_json(&[key], value)
    }

    fn as_json(&self, path: &[&str], value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let below = |name, value| self.as_json(&[path, &[name]].concat(), value);
        Some(match value.get_ref() {
            DeValue::String(text) => Value::String(self.interpolated(path, value, text)?),
            DeValue::Integer(number) => {
                let number = i64::from_str_radix(number.as_str(), number.radix());
                number.unwrap_or(i64::MAX).into()
            }
            DeValue::Float(number) => Value::from(number.as_str().parse::<f64>().ok()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Array(items) => {
                Value::Array(items.iter().filter_map(|item| self.as_json(path, item)).collect())
            }
            DeValue::Table(table) => Value::Object(
                table
                    .iter()
                    .filter_map(|(name, value)| {
                        Some((name.get_ref().to_string(), below(name.get_ref(), value)?))
                    })
                    .collect(),
            ),
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'d str> + use<'d> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Whether there is a key at the end of this way.
    pub(crate) fn leads_to(&self, path: &[String]) -> bool {
        let mut table = Some(self.table);
        path.iter().all(|part| {
            let found = table.and_then(|table| {
                table.iter().find(|(key, _)| key.get_ref().as_ref() == part.as_str())
            });
            table = found.and_then(|(_, value)| value.get_ref().as_table());
            found.is_some()
        })
    }

    /// Records a fault of this section as a whole.
    pub(crate) fn fault(&self, problem: impl Into<String>, hint: Option<String>) {
        self.document.fault(self.offset, problem.into(), hint);
    }

    /// Records a fault at a key, or at the way that leads as near to it as there is.
    pub(crate) fn fault_at(&self, path: &[impl AsRef<str>], problem: &str, hint: Option<String>) {
        let mut offset = self.offset;
        let mut table = Some(self.table);
        for part in path {
            let found = table.and_then(|table| {
                table.iter().find(|(key, _)| key.get_ref().as_ref() == part.as_ref())
            });
            let Some((key, value)) = found else { break };
            offset = key.span().start;
            table = value.get_ref().as_table();
        }
        let problem = format!("{} {problem}", self.path(path));
        self.document.fault(offset, problem, hint);
    }

    fn entry(&self, key: &str) -> Option<(usize, &'d Spanned<DeValue<'d>>)> {
        self.table
            .iter()
            .find(|(name, _)| name.get_ref().as_ref() == key)
            .map(|(name, value)| (name.span().start, value))
    }

    fn interpolated(
        &self,
        path: &[&str],
        value: &Spanned<DeValue<'_>>,
        text: &str,
    ) -> Option<String> {
        interpolate(text, self.document.environment)
            .map_err(|problem| {
                let problem = format!("{} {problem}", self.path(path));
                self.document.fault(value.span().start, problem, None);
            })
            .ok()
    }

    fn wrong(&self, key: &str, expected: &str, hint: Option<&str>) {
        self.fault_at(&[key], &format!("must be {expected}"), hint.map(str::to_owned));
    }

    /// The way to a key, with names that need quotes in quotes.
    fn path(&self, keys: &[impl AsRef<str>]) -> String {
        let mut path = self.name.clone();
        for key in keys {
            let key = key.as_ref();
            let plain =
                key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&if plain { key.to_owned() } else { format!("{key:?}") });
        }
        path
    }
}

/// A whole number that is not negative.
fn whole(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}
