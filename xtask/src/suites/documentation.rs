//! The documentation builds, and its links lead somewhere.

use super::one_result;
use crate::tally::Tally;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> anyhow::Result<Tally> {
    let mut command = tree.cargo();
    // Libraries alone: the program `postroom` would overwrite the pages of the library `postroom`.
    command.args(["doc", "--workspace", "--lib", "--all-features", "--no-deps"]);
    one_result("cargo doc", command.env("RUSTDOCFLAGS", "-Dwarnings"))
}
