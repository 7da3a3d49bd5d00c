//! A database for an example: empty but for what `postroom migrate` makes.

use crate::tree::Tree;
use anyhow::{Context as _, ensure};
use postroom_testkit::{Postgres, TestDatabase};

/// Creates and migrates one, with the program that the Rust tests have built.
pub(super) async fn migrated(tree: &Tree, server: &Postgres) -> anyhow::Result<TestDatabase> {
    let database = server.try_database().await?;
    let program = tree.binaries.join("postroom");
    let output = tree
        .command(&program)
        .args(["migrate", "--database", database.url()])
        .output()
        .with_context(|| format!("running {}: did cargo test build it?", program.display()))?;
    ensure!(
        output.status.success(),
        "`postroom migrate` failed ({})\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(database)
}
