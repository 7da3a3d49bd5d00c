//! What is wrong with a configuration: every fault, its place, and what to do.

use std::fmt;

/// One fault.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) problem: String,
    pub(crate) hint: Option<String>,
}

/// Where a fault is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Place {
    /// In the file, counted from 1.
    File { line: usize, column: usize },
    /// In the environment or on the command line; the problem names the variable or option.
    Outside,
}

/// All faults of one configuration.
#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) file: Option<String>,
    pub(crate) faults: Vec<Fault>,
}

impl Faults {
    /// A fault that has no place in a file.
    pub(crate) fn outside(problem: impl Into<String>, hint: Option<String>) -> Self {
        let fault = Fault { place: Place::Outside, problem: problem.into(), hint };
        Self { file: None, faults: vec![fault] }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults = self.faults.clone();
        faults.sort();
        faults.dedup();
        let count = match faults.len() {
            1 => "1 fault".to_owned(),
            n => format!("{n} faults"),
        };
        write!(f, "the configuration has {count}:")?;
        for Fault { place, problem, hint } in &faults {
            match (place, &self.file) {
                (Place::File { line, column }, Some(file)) => {
                    write!(f, "\n  {file}:{line}:{column}: {problem}")?;
                }
                _ => write!(f, "\n  {problem}")?,
            }
            if let Some(hint) = hint {
                write!(f, "\n      hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Line and column of a byte offset, both counted from 1, the column in characters.
pub(crate) fn place_of(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place::File {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}
