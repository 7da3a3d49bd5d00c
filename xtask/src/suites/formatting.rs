//! Every Rust file is formatted.

use super::one_result;
use crate::tally::Tally;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> anyhow::Result<Tally> {
    one_result("cargo fmt", tree.cargo().args(["fmt", "--all", "--check"]))
}
