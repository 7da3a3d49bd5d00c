//! Tests that cannot run here say so, by name and with their reason.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Records that the test `name` did not run, and why. The test returns after it.
///
/// `cargo xtask test` names a file in `POSTROOM_SKIPS`, counts its lines as skipped instead of
/// passed, and prints them; without it, the line on standard error is all there is.
///
/// # Panics
/// When the file cannot be written: a skip that nobody sees would look like a pass.
pub fn skip(name: &str, reason: &str) {
    let line = format!("{name}\t{}\n", reason.replace(['\n', '\t'], " "));
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os("POSTROOM_SKIPS") {
        // One write per line, appended: test processes may do so at the same time.
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("recording a skip in {}: {error}", path.display()));
    }
}

/// Something that a test needs is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotInstalled(pub(crate) String);

/// Ends a test that needs what is not installed.
pub trait OrSkip<T> {
    /// The value. Where something is not installed, the test ends as a skip under its own name:
    /// cargo alone shows a failure, and `cargo xtask test` counts it as skipped.
    ///
    /// # Panics
    /// To end the test; on any other error, as a failure.
    fn or_skip(self) -> T;
}

impl<T> OrSkip<T> for anyhow::Result<T> {
    fn or_skip(self) -> T {
        self.unwrap_or_else(|error| {
            if error.downcast_ref::<NotInstalled>().is_some() {
                // libtest names a test's thread after it.
                skip(std::thread::current().name().unwrap_or("a test"), &format!("{error:#}"));
            }
            panic!("{error:#}")
        })
    }
}
