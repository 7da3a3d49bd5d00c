//! The Python example, in a virtual environment that is kept between runs.

use super::example_database;
use crate::tally::{Skip, Tally};
use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use postroom_testkit::Postgres;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "Python example";

pub(crate) async fn test(tree: &Tree, server: &Postgres) -> anyhow::Result<Tally> {
    let python = match environment(tree) {
        Ok(python) => python,
        Err(error) => return Ok(Tally::skipped(NAME, &format!("{error:#}"))),
    };
    let database = example_database::migrated(tree, server).await?;
    let output = tree
        .command(python)
        .args(["-m", "unittest", "-v"])
        .current_dir(tree.example("python"))
        .env("DATABASE_URL", database.url())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .context("running the Python tests")?;
    let report = String::from_utf8_lossy(&output.stderr);
    print!("{}{report}", String::from_utf8_lossy(&output.stdout));
    Ok(read(&report, output.status.success()))
}

/// The interpreter of an environment with exactly what the example requires.
fn environment(tree: &Tree) -> anyhow::Result<PathBuf> {
    let folder = tree.cache.join("python");
    let python = folder.join("bin/python");
    let required = tree.example("python").join("requirements.txt");
    let wanted = fs::read(&required).context("reading requirements.txt")?;
    // Copied there last, so that it says that the environment is complete.
    let installed = folder.join("requirements.txt");
    if fs::read(&installed).is_ok_and(|present| present == wanted) && works(&python) {
        return Ok(python);
    }
    fs::create_dir_all(&tree.cache).context("making the cache folder")?;
    quietly(tree.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = tree.command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    quietly(pip.arg(&required))?;
    fs::write(&installed, wanted).context("completing the environment")?;
    Ok(python)
}

/// An upgrade of the system's Python can leave the environment without its interpreter.
fn works(python: &PathBuf) -> bool {
    Command::new(python).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{command:?} failed ({}): {last}", output.status);
    Ok(())
}

/// Counts what `unittest -v` reports: `name (place) ... ok`, `FAIL`, `ERROR`, `skipped 'why'`.
fn read(report: &str, well: bool) -> Tally {
    let mut tally = Tally::default();
    for line in report.lines() {
        let Some((test, result)) = line.trim().rsplit_once(" ... ") else { continue };
        let name = format!("{NAME}: {}", test.split(' ').next().unwrap_or(test));
        match result.strip_prefix("skipped ") {
            Some(reason) => {
                tally.skipped.push(Skip { name, reason: reason.trim_matches('\'').to_owned() });
            }
            None if result == "ok" => tally.passed += 1,
            None if matches!(result, "FAIL" | "ERROR") => tally.failed.push(name),
            None => {}
        }
    }
    if !well && tally.failed.is_empty() {
        tally.failed.push(NAME.to_owned());
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_test() {
        let report = "test_a (t.T.test_a) ... ok
test_b (t.T.test_b) ... FAIL
test_c (t.T.test_c) ... skipped 'not here'
======
Ran 3 tests in 0.001s";
        let tally = read(report, false);
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed, ["Python example: test_b"]);
        assert_eq!(tally.skipped[0].reason, "not here");
    }

    #[test]
    fn tests_that_could_not_be_loaded_are_a_failure() {
        assert_eq!(read("ImportError", false).failed, ["Python example"]);
    }
}
