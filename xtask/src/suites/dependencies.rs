//! Licences, bans and sources of all dependencies, by cargo-deny.

use super::one_result;
use crate::phase;
use crate::tally::Tally;
use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "cargo deny";
/// Pinned: `deny.toml` is written for it.
const VERSION: &str = "0.20.2";

pub(crate) fn check(tree: &Tree) -> anyhow::Result<Tally> {
    let program = match find_or_install(tree) {
        Ok(program) => program,
        Err(error) => return Ok(Tally::skipped(NAME, &format!("{error:#}"))),
    };
    let mut command = tree.command(program);
    command.args(["--locked", "--log-level", "error"]);
    let mut tally = one_result(NAME, command.args(["check", "licenses", "bans", "sources"]))?;
    tally.add(Tally::skipped(
        "cargo deny check advisories",
        "needs the advisory database, which is fetched from the network at every run",
    ));
    Ok(tally)
}

/// The pinned version: on `PATH`, or built once into the cache.
fn find_or_install(tree: &Tree) -> anyhow::Result<PathBuf> {
    let on_path = PathBuf::from("cargo-deny");
    if is_pinned(&on_path) {
        return Ok(on_path);
    }
    let folder = tree.cache.join(format!("cargo-deny-{VERSION}"));
    let program = folder.join("bin/cargo-deny");
    if !is_pinned(&program) {
        phase::preparation(&format!("building cargo-deny {VERSION}, once"), || {
            let build = tempfile::tempdir().context("a folder to build cargo-deny in")?;
            let status = tree
                .cargo()
                // Unoptimised: it builds in a minute, and checks in two seconds all the same.
                .args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug"])
                .args(["--quiet", "--root"])
                .arg(&folder)
                .env("CARGO_TARGET_DIR", build.path())
                .env("CARGO_PROFILE_DEV_DEBUG", "false")
                .status()
                .context("running cargo install")?;
            ensure!(status.success(), "cargo-deny {VERSION} could not be built ({status})");
            Ok(())
        })?;
    }
    Ok(program)
}

fn is_pinned(program: &PathBuf) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-deny {VERSION}")
    })
}
