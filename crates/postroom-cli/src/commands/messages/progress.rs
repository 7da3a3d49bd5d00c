//! How far a long operation is, on standard error.

use crate::output;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line is written where nobody sees it change.
const LINES: Duration = Duration::from_secs(5);
const LIVE: Duration = Duration::from_millis(100);

/// Tells of progress to people; programs get their result at the end.
pub(super) struct Progress {
    what: &'static str,
    is_silent: bool,
    is_live: bool,
    told: Instant,
    /// How many messages were changed so far.
    pub(super) messages: u64,
    has_told: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, json: bool) -> Self {
        let is_live = io::stderr().is_terminal();
        Self { what, is_silent: json, is_live, told: Instant::now(), messages: 0, has_told: false }
    }

    pub(super) fn tell(&mut self, messages: u64) {
        self.messages = messages;
        let pause = if self.is_live { LIVE } else { LINES };
        if self.is_silent || self.told.elapsed() < pause {
            return;
        }
        self.told = Instant::now();
        self.has_told = true;
        let line = format!("{} {} so far; Ctrl-C stops", output::count(messages), self.what);
        let mut stderr = io::stderr().lock();
        // Nobody reading the progress is no reason to stop.
        let _ = if self.is_live {
            write!(stderr, "\r{line}\x1b[K")
        } else {
            writeln!(stderr, "{line}")
        };
        let _ = stderr.flush();
    }

    /// Leaves the line to the result.
    pub(super) fn end(&self) {
        if self.is_live && self.has_told {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
