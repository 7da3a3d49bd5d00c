//! Clippy and the compiler have nothing to say.

use super::one_result;
use crate::tally::Tally;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> anyhow::Result<Tally> {
    let mut command = tree.cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--all-features"]);
    one_result("cargo clippy", command.args(["--", "--deny", "warnings"]))
}
