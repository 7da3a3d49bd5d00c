//! What commands print: tables for people, JSON for programs.

mod colour;
mod table;

pub(crate) use colour::{Colour, is_wanted as wants_colour};
pub(crate) use table::{Align, Table};

use chrono::{DateTime, SecondsFormat, Utc};
use std::io::{self, IsTerminal, Write};

/// Writes a whole text to standard output. A reader that has gone, such as `head`, is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_live(text).map(|_| ())
}

/// The same for commands that go on: `false` when the reader has gone, and nobody is left to go on
/// for.
pub(crate) fn print_live(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// Prints a value as JSON, a line of its own.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(print(&text)?)
}

/// Prints a table.
pub(crate) fn print_table(table: &Table) -> io::Result<()> {
    print(&rendered(table))
}

/// A table as wide as the terminal, or as wide as it wants to be.
pub(crate) fn rendered(table: &Table) -> String {
    table.render(terminal_width(), wants_colour())
}

/// How wide the terminal is; `None` where standard output is none.
pub(crate) fn terminal_width() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(terminal_size::terminal_size).flatten();
    size.map(|(width, _)| usize::from(width.0))
}

/// A table for standard error, as wide as the terminal there.
pub(crate) fn rendered_for_errors(table: &Table) -> String {
    let size = terminal_size::terminal_size_of(io::stderr());
    table.render(size.map(|(width, _)| usize::from(width.0)), false)
}

/// A text from a database or a receiver on one line, without anything that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A time in RFC 3339, UTC.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A span of milliseconds in the unit that suits its size.
pub(crate) fn span(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{:.1} s", millis as f64 / 1e3),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        7_200_000..172_800_000 => format!("{} h", millis / 3_600_000),
        _ => format!("{} d", millis / 86_400_000),
    }
}

/// How long ago something was.
pub(crate) fn age(since: DateTime<Utc>, now: DateTime<Utc>) -> String {
    span(u64::try_from((now - since).num_milliseconds()).unwrap_or(0))
}

/// A count with its digits in groups.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(span(999), "999 ms");
        assert_eq!(span(1_500), "1.5 s");
        assert_eq!(span(7_300_000), "2 h");
    }
}
