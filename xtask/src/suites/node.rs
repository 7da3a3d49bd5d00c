//! The Node example.

use super::example_database;
use crate::tally::{Skip, Tally};
use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use postroom_testkit::Postgres;
use std::fs;
use std::process::Output;

const NAME: &str = "Node example";

pub(crate) async fn test(tree: &Tree, server: &Postgres) -> anyhow::Result<Tally> {
    if let Err(error) = install(tree, "node") {
        return Ok(Tally::skipped(NAME, &format!("{error:#}")));
    }
    let database = example_database::migrated(tree, server).await?;
    let output = tree
        .command("node")
        // Run as a plain script: `node --test` nests its report differently in each version.
        .args(["--test-reporter=tap", "place-order.test.mjs"])
        .current_dir(tree.example("node"))
        .env("DATABASE_URL", database.url())
        .output()
        .context("running the Node tests")?;
    Ok(show(NAME, &output))
}

/// Shows what a run of tests has printed with the TAP reporter, and counts it.
pub(super) fn show(name: &str, output: &Output) -> Tally {
    let report = String::from_utf8_lossy(&output.stdout);
    let well = output.status.success();
    // The rest of the report says nothing as long as all is well.
    for line in report.lines().filter(|line| !well || line.starts_with("ok ")) {
        println!("{line}");
    }
    print!("{}", String::from_utf8_lossy(&output.stderr));
    read(name, &report, well)
}

/// Installs what the lock file of an example names, unless it is there already.
pub(super) fn install(tree: &Tree, example: &str) -> anyhow::Result<()> {
    let folder = tree.example(example);
    let wanted = fs::read(folder.join("package-lock.json")).context("package-lock.json")?;
    // Copied there last, so that it says that the folder is complete.
    let installed = folder.join("node_modules/.installed-lock.json");
    if fs::read(&installed).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    let output = tree
        .command("npm")
        .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&folder)
        .output()
        .context("running npm")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "`npm ci` failed ({}): {last}", output.status);
    fs::write(&installed, wanted).context("completing node_modules")
}

/// Counts what the TAP reporter says of each test: `ok 1 - name`, `not ok 2 - name`, and
/// `ok 3 - name # SKIP why`.
fn read(name: &str, report: &str, well: bool) -> Tally {
    let mut tally = Tally::default();
    for line in report.lines() {
        let (is_ok, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => continue,
        };
        let Some((_, test)) = rest.split_once(" - ") else { continue };
        if let Some((test, reason)) = test.split_once(" # SKIP") {
            let (name, reason) = (format!("{name}: {test}"), reason.trim().to_owned());
            tally.skipped.push(Skip { name, reason });
        } else if is_ok {
            tally.passed += 1;
        } else {
            tally.failed.push(format!("{name}: {test}"));
        }
    }
    if !well && tally.failed.is_empty() {
        tally.failed.push(name.to_owned());
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_test() {
        let report = "TAP version 13
# Subtest: commits both
ok 1 - commits both
  ---
  duration_ms: 1.1
  ...
not ok 2 - rolls back both
ok 3 - elsewhere # SKIP not here
1..3
# pass 1";
        let tally = read(NAME, report, false);
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failed, ["Node example: rolls back both"]);
        assert_eq!(tally.skipped[0].reason, "not here");
    }
}
