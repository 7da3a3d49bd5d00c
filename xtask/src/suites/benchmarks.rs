//! Every benchmark at its smallest size: a change that breaks one does not land.

use crate::bench;
use crate::tally::{Skip, Tally};
use crate::tree::Tree;
use anyhow::Context as _;
use std::fs;

const NAME: &str = "benchmarks";

pub(crate) fn check(tree: &Tree) -> anyhow::Result<Tally> {
    if let Err(error) = postroom_testkit::find_postgres() {
        return Ok(Tally::skipped(NAME, &format!("{error:#}")));
    }
    let skips = tempfile::NamedTempFile::new().context("a file for skips")?;
    let mut tally = Tally::default();
    bench::smoke_all(tree, &[("POSTROOM_SKIPS", skips.path())], |name, ended| {
        let name = format!("cargo xtask bench {name} {}", bench::SMOKE);
        tally.add(match ended {
            Ok(true) => Tally::passed(),
            Ok(false) => Tally::failed(&name),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                Tally::failed(&name)
            }
        });
    })?;
    // A figure whose server cannot be had, of a bench that has run otherwise.
    let skips = fs::read_to_string(skips.path()).context("reading the skips")?;
    tally.skipped.extend(Skip::recorded(&skips));
    Ok(tally)
}
