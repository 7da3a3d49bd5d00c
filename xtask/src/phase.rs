//! One line when a phase begins, one when it ends.

use crate::tally::Tally;
use std::time::Instant;

/// Runs a phase that counts results. An error is a failure of the phase, by its name.
pub(crate) fn suite(name: &str, run: impl FnOnce() -> anyhow::Result<Tally>) -> Tally {
    let run = || {
        run().unwrap_or_else(|error| {
            eprintln!("{error:#}");
            Tally::failed(name)
        })
    };
    timed(name, run, Tally::to_string)
}

/// Runs a phase that prepares something.
pub(crate) fn preparation<T>(
    name: &str,
    run: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    timed(name, run, |result| if result.is_ok() { "done".into() } else { "failed".into() })
}

fn timed<T>(name: &str, run: impl FnOnce() -> T, describe: impl FnOnce(&T) -> String) -> T {
    println!("== {name}");
    let start = Instant::now();
    let result = run();
    println!("== {name}: {} ({:.1} s)", describe(&result), start.elapsed().as_secs_f64());
    result
}
