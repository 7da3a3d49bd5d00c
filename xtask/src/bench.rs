//! `cargo xtask bench`: figures, most of them on a PostgreSQL of its own, set up as one would run it.

use crate::test::install_packages;
use crate::tree::Tree;
use anyhow::Context as _;
use postroom_testkit::Postgres;
use tokio::runtime::Runtime;

/// The benches there are: each is a bench target of the crate that it measures.
pub(crate) const NAMES: &[&str] = &["relay", "latency", "sinks", "bullmq"];
/// Those that need no PostgreSQL.
const WITHOUT_POSTGRES: &[&str] = &["sinks"];

/// Durable, unlike the servers for tests, and with room for the tables that are measured.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("wal_level", "replica"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
];

/// Runs one bench, or one figure of it. Says whether it could be measured; what the figures say
/// is for the reader.
pub(crate) fn run(name: &str, figure: Option<&str>) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    install_packages(&tree);
    let package = if name == "bullmq" { "postroom-bullmq" } else { "postroom-relay" };
    let mut command = tree.cargo();
    command.args(["bench", "--quiet", "--package", package, "--bench", name]);
    if name == "sinks" {
        command.args(["--features", "kafka"]);
    }
    command.arg("--").args(figure);
    if WITHOUT_POSTGRES.contains(&name) {
        return Ok(command.status().context("cargo bench")?.success());
    }
    let runtime = Runtime::new().context("an async runtime")?;
    let server = runtime.block_on(Postgres::private(SETTINGS))?;
    let database = runtime.block_on(server.try_database())?;
    let status = command.env("DATABASE_URL", database.url()).status().context("cargo bench")?;
    Ok(status.success())
}
