//! `cargo xtask chaos`: the checker on an optimised build of the program.

use crate::test::install_packages;
use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;

/// Runs the checker with these arguments. Says whether the books balance.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    install_packages(&tree);
    let postroom = build(&tree)?;
    let status = tree
        .cargo()
        .args(["run", "--quiet", "--release", "--package", "postroom-testkit"])
        .args(["--features", "chaos", "--bin", "chaos", "--", "--postroom"])
        .arg(postroom)
        .args(arguments)
        .status()
        .context("running the checker")?;
    Ok(status.success())
}

/// Builds `postroom`, and says where it is.
pub(crate) fn build(tree: &Tree) -> anyhow::Result<PathBuf> {
    let mut command = tree.cargo();
    command.args(["build", "--quiet", "--release", "--package", "postroom-cli"]);
    let status = command.status().context("cargo build")?;
    ensure!(status.success(), "postroom could not be built");
    // Beside the folder of this program, which is built for development.
    let target = tree.binaries.parent().context("the folder of what cargo builds")?;
    Ok(target.join("release/postroom"))
}
