//! Results of all suites, added up.

use std::fmt;

/// What passed, what failed and what did not run.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    /// By name.
    pub(crate) failed: Vec<String>,
    /// What the failures said when they happened.
    pub(crate) panics: Vec<String>,
    pub(crate) skipped: Vec<Skip>,
}

/// A test that did not run.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Skip {
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Skip {
    /// Those that tests have recorded, a line `name TAB reason` each.
    pub(crate) fn recorded(lines: &str) -> impl Iterator<Item = Self> {
        lines.lines().map(|line| {
            let (name, reason) = line.split_once('\t').unwrap_or((line, "no reason given"));
            Self { name: name.to_owned(), reason: reason.to_owned() }
        })
    }
}

impl Tally {
    /// One result that is well.
    pub(crate) fn passed() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    /// One result that is not.
    pub(crate) fn failed(name: &str) -> Self {
        Self { failed: vec![name.to_owned()], ..Self::default() }
    }

    /// One that did not run.
    pub(crate) fn skipped(name: &str, reason: &str) -> Self {
        let skip = Skip { name: name.to_owned(), reason: reason.to_owned() };
        Self { skipped: vec![skip], ..Self::default() }
    }

    /// Whether nothing failed.
    pub(crate) fn is_well(&self) -> bool {
        self.failed.is_empty()
    }

    /// Adds the results of another suite.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.panics.extend(other.panics);
        self.skipped.extend(other.skipped);
    }

    /// Prints each skip and each failure by name, what the failures said, which is thousands of lines up by
    /// now, and last the line that adds up everything.
    pub(crate) fn print(&self) {
        println!();
        for skip in &self.skipped {
            println!("skipped: {}: {}", skip.name, skip.reason);
        }
        for panic in &self.panics {
            println!("{panic}");
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!("{self}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        write!(f, "{} passed, {failed} failed, {skipped} skipped", self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn the_last_line_adds_up_all_suites() {
        let mut total = Tally::passed();
        total.add(Tally { passed: 41, ..Tally::default() });
        total.add(Tally::failed("a::b"));
        total.add(Tally::skipped("c::d", "no such service"));
        assert_eq!(total.to_string(), "42 passed, 1 failed, 1 skipped");
        assert!(!total.is_well());
    }
}
