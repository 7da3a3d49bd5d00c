//! The suites, one file each; every one returns its tally.

pub(crate) mod benchmarks;
pub(crate) mod dependencies;
pub(crate) mod documentation;
mod example_database;
pub(crate) mod formatting;
pub(crate) mod lints;
pub(crate) mod nestjs;
pub(crate) mod node;
pub(crate) mod python;
pub(crate) mod rust;

use crate::tally::Tally;
use anyhow::Context as _;
use std::process::Command;

/// Runs a command whose exit status is the one result, counted under `name`.
fn one_result(name: &str, command: &mut Command) -> anyhow::Result<Tally> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    Ok(if status.success() { Tally::passed() } else { Tally::failed(name) })
}
