//! The NestJS example: TypeORM makes the table, and Postroom delivers what is in it.

use super::node;
use crate::tally::Tally;
use crate::tree::Tree;
use anyhow::{Context as _, bail, ensure};
use postroom_testkit::Postgres;

const NAME: &str = "NestJS example";
/// The oldest Node that TypeORM and NestJS run on.
const NODE_MIN: (u32, u32) = (20, 19);

pub(crate) fn test(tree: &Tree, server: &Postgres) -> anyhow::Result<Tally> {
    if let Err(error) = prepare(tree) {
        return Ok(Tally::skipped(NAME, &format!("{error:#}")));
    }
    let folder = tree.example("nestjs");
    let compiled = tree
        .command("node")
        .args(["node_modules/typescript/bin/tsc", "-p", "."])
        .current_dir(&folder)
        .output()
        .context("compiling the NestJS example")?;
    ensure!(
        compiled.status.success(),
        "the NestJS example does not compile\n{}",
        String::from_utf8_lossy(&compiled.stdout)
    );
    let output = tree
        .command("node")
        .args(["--test-reporter=tap", "dist/test/orders.test.js"])
        .current_dir(&folder)
        .env("DATABASE_URL", server.url())
        .env("POSTROOM", tree.binaries.join("postroom"))
        .output()
        .context("running the tests of the NestJS example")?;
    Ok(node::show(NAME, &output))
}

fn prepare(tree: &Tree) -> anyhow::Result<()> {
    let output = tree.command("node").arg("--version").output().context("running node")?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if read_version(&version).is_none_or(|found| found < NODE_MIN) {
        let (major, minor) = NODE_MIN;
        bail!("it needs Node {major}.{minor}, and this is {version}");
    }
    node::install(tree, "nestjs")
}

/// The first two numbers of `v20.19.5`.
fn read_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_node_is_compared_by_its_numbers() {
        assert_eq!(read_version("v20.19.5"), Some((20, 19)));
        assert!(read_version("v9.11.2").unwrap() < NODE_MIN);
        assert_eq!(read_version("not found"), None);
    }
}
