//! `cargo xtask soak bullmq`: the transport through BullMQ on an optimised build of the program.

use crate::chaos::build;
use crate::test::install_packages;
use crate::tree::Tree;
use anyhow::Context as _;

/// Runs it with these arguments. Says whether everything arrived.
pub(crate) fn run(arguments: &[&str]) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    install_packages(&tree);
    let postroom = build(&tree)?;
    let status = tree
        .cargo()
        .args(["run", "--quiet", "--release", "--package", "postroom-testkit"])
        .args(["--bin", "soak", "--", "--postroom"])
        .arg(postroom)
        .args(arguments)
        .status()
        .context("running the soak")?;
    Ok(status.success())
}
