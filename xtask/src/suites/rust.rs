//! All Rust tests, counted from what libtest prints.

use crate::tally::{Skip, Tally};
use crate::test::Databases;
use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use postroom_testkit::Postgres;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Which tests take their time and run only when asked to, and what they are.
const ASKED_FOR: [&str; 2] = ["layouts::on_mysql_too", "the other layouts on MySQL 8"];

/// Runs the tests against `server`.
pub(crate) fn test(
    tree: &Tree,
    server: &Postgres,
    only: Option<&str>,
    databases: Databases,
) -> anyhow::Result<Tally> {
    let mut arguments = vec!["--workspace", "--no-fail-fast"];
    arguments.extend(only);
    let [filter, name] = ASKED_FOR;
    let is_left_out = databases == Databases::Usual && only.is_none();
    if is_left_out {
        arguments.extend(["--", "--skip", filter]);
    }
    let mut tally = run(tree, server, &arguments)?;
    if is_left_out {
        tally.add(Tally::skipped(name, "`cargo xtask test --databases all` runs them"));
    }
    if let Some(filter) = only {
        ensure!(tally != Tally::default(), "no Rust test has {filter:?} in its name");
    }
    Ok(tally)
}

/// Runs the store contract against `server`, which is of another release.
pub(crate) fn test_contract(tree: &Tree, server: &Postgres) -> anyhow::Result<Tally> {
    let contract = ["-p", "postroom-store", "--test", "main", "--no-fail-fast", "postgres::"];
    let tally = run(tree, server, &contract)?;
    ensure!(tally != Tally::default(), "the store contract has no test on PostgreSQL");
    Ok(tally)
}

/// Runs `cargo test`, showing what the tests print as they print it.
fn run(tree: &Tree, server: &Postgres, arguments: &[&str]) -> anyhow::Result<Tally> {
    let skips = tempfile::NamedTempFile::new().context("a file for skips")?;
    let mut child = tree
        .cargo()
        .args(["test", "--all-features"])
        .args(arguments)
        .env("DATABASE_URL", server.url())
        .env("POSTROOM_SKIPS", skips.path())
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo test")?;
    let stdout = child.stdout.take().context("the output of cargo test is piped")?;
    let mut results = Results::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("reading the output of cargo test")?;
        let line = String::from_utf8_lossy(&line);
        results.read(&line);
        if !is_noise(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("waiting for cargo test")?;
    let skips = fs::read_to_string(skips.path()).context("reading the skips")?;
    Ok(results.tally(status.success(), &skips))
}

/// Programs without tests, and the lines between them.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line == "running 0 tests"
        || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored;")
}

/// What the lines so far have said.
#[derive(Default)]
struct Results {
    /// Test programs that have begun, and those that have come to their end.
    begun: usize,
    ended: usize,
    passed: usize,
    failed: usize,
    failed_names: Vec<String>,
    /// What failed tests said, from the line that names the place on.
    panics: Vec<String>,
    /// How many lines of the last of them may follow.
    panic_lines_left: usize,
    ignored: Vec<Skip>,
}

/// How much of what a failed test says is repeated at the end. The rest is its log.
const PANIC_LINES: usize = 12;

impl Results {
    fn read(&mut self, line: &str) {
        self.read_panic(line);
        if line.starts_with("running ") && (line.ends_with(" test") || line.ends_with(" tests")) {
            self.begun += 1;
        } else if let Some(summary) = line.strip_prefix("test result: ") {
            self.ended += 1;
            self.passed += count(summary, "passed");
            self.failed += count(summary, "failed");
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.to_owned();
            if result == "FAILED" {
                self.failed_names.push(name);
            } else if let Some(reason) = result.strip_prefix("ignored") {
                let reason = reason.trim_start_matches(", ");
                let reason = if reason.is_empty() { "marked #[ignore]" } else { reason };
                self.ignored.push(Skip { name, reason: reason.to_owned() });
            }
        }
    }

    fn read_panic(&mut self, line: &str) {
        if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.panic_lines_left = PANIC_LINES;
            self.panics.push(line.to_owned());
        } else if line.starts_with("----") || line == "failures:" {
            self.panic_lines_left = 0;
        } else if self.panic_lines_left > 0
            && let Some(panic) = self.panics.last_mut()
        {
            self.panic_lines_left -= 1;
            panic.push('\n');
            panic.push_str(line);
        }
    }

    /// `skips` has a line `name TAB reason` for each test that did not run: it has passed all the
    /// same, or ended itself for want of something, as a failure.
    fn tally(self, well: bool, skips: &str) -> Tally {
        let mut failed = self.failed_names;
        // Tests that libtest counts without a line of their own are still failures.
        let named = failed.len();
        failed.extend((named..self.failed).map(|_| "a test without a name".to_owned()));
        if self.begun != self.ended || (!well && failed.is_empty()) {
            failed.push("cargo test: something did not compile, or a test process crashed".into());
        }
        let skipped: Vec<Skip> = Skip::recorded(skips).collect();
        let before = failed.len();
        failed.retain(|name| !skipped.iter().any(|skip| skip.name == *name));
        let ended = before - failed.len();
        let passed = self.passed.saturating_sub(skipped.len().saturating_sub(ended));
        Tally {
            passed,
            failed,
            panics: self.panics,
            skipped: self.ignored.into_iter().chain(skipped).collect(),
        }
    }
}

/// The number before `word` in a summary like `ok. 3 passed; 0 failed; 1 ignored; …`.
fn count(summary: &str, word: &str) -> usize {
    summary
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(word))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Results {
        let mut results = Results::default();
        output.lines().for_each(|line| results.read(line));
        results
    }

    #[test]
    fn results_of_all_programs_add_up_and_failures_have_names() {
        let results = read(
            "running 3 tests
test a::fine ... ok
test a::panics - should panic ... ok
test a::broken ... FAILED
test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
running 1 test
test src/lib.rs - b (line 3) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.0s",
        );
        let tally = results.tally(false, "");
        assert_eq!(tally.passed, 3);
        assert_eq!(tally.failed, ["a::broken"]);
    }

    #[test]
    fn what_a_failed_test_said_is_kept_without_its_log() {
        let results = read(
            "test a::broken ... FAILED
failures:
---- a::broken stdout ----
INFO a line of the log
thread 'a::broken' (17) panicked at tests/a.rs:3:5:
waited 60s in vain for ready = false
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

failures:
    a::broken
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        let panics = results.tally(false, "").panics;
        assert_eq!(panics.len(), 1);
        let lines: Vec<&str> = panics[0].lines().collect();
        assert_eq!(lines[0], "thread 'a::broken' (17) panicked at tests/a.rs:3:5:");
        assert_eq!(lines[1], "waited 60s in vain for ready = false");
        assert!(!panics[0].contains("failures"), "{panics:?}");
    }

    #[test]
    fn what_did_not_run_is_skipped_and_not_passed() {
        let results = read(
            "test a::slow ... ignored, takes an hour
test a::odd ... ignored
test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        let tally = results.tally(true, "b::c\tno such service\n");
        assert_eq!(tally.passed, 1);
        let skipped: Vec<_> =
            tally.skipped.iter().map(|skip| (&*skip.name, &*skip.reason)).collect();
        let expected = [
            ("a::slow", "takes an hour"),
            ("a::odd", "marked #[ignore]"),
            ("b::c", "no such service"),
        ];
        assert_eq!(skipped, expected);
    }

    #[test]
    fn a_test_that_ended_for_want_of_something_is_skipped_and_has_not_failed() {
        let results = read(
            "running 3 tests
test a::fine ... ok
test a::no_server ... FAILED
test a::broken ... FAILED
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        let tally = results.tally(false, "a::no_server\tnot installed\n");
        assert_eq!((tally.passed, tally.skipped.len()), (1, 1));
        assert_eq!(tally.failed, ["a::broken"]);
    }

    #[test]
    fn a_crash_is_a_failure_with_and_without_a_failing_test() {
        assert_eq!(read("running 3 tests").tally(false, "").failed.len(), 1);
        let results = read(
            "running 1 test\ntest a ... FAILED\nrunning 1 test\ntest result: FAILED. 0 passed; 1 failed;",
        );
        assert_eq!(results.tally(false, "a\tnot installed\n").failed.len(), 1);
    }
}
