//! `cargo xtask bench`: figures, most of them on a PostgreSQL of its own, set up as one would run it.

use crate::test::install_packages;
use crate::tree::Tree;
use anyhow::{Context as _, bail};
use postroom_testkit::Postgres;
use std::process::Command;
use tokio::runtime::Runtime;

/// The benches there are: each is a bench target of the crate that it measures.
pub(crate) const NAMES: &[&str] = &["relay", "latency", "layouts", "sinks", "bullmq", "eventlog"];
/// Those that need no PostgreSQL.
const WITHOUT_POSTGRES: &[&str] = &["sinks", "eventlog"];

/// Asks for a run of seconds, which shows that a bench still works and measures nothing.
pub(crate) const SMOKE: &str = "--smoke";

/// Durable, unlike the servers for tests, and with room for the tables that are measured.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("wal_level", "replica"),
    ("shared_buffers", "1GB"),
    ("max_wal_size", "8GB"),
];

/// Runs one bench, or one figure of it, at its full size or its smallest. Says whether it could be
/// measured; what the figures say is for the reader.
pub(crate) fn run(name: &str, options: &[&str]) -> anyhow::Result<bool> {
    let (smoke, figure) = match *options {
        [] => (false, None),
        [SMOKE] => (true, None),
        [SMOKE, figure] | [figure, SMOKE] => (true, Some(figure)),
        [figure] => (false, Some(figure)),
        _ => bail!("a bench takes the name of one figure, and {SMOKE}"),
    };
    let tree = Tree::find()?;
    install_packages(&tree);
    let mut command = if smoke { smoke_command(&tree, name) } else { full_command(&tree, name) };
    command.args(figure);
    if WITHOUT_POSTGRES.contains(&name) {
        return Ok(command.status().context("cargo bench")?.success());
    }
    let runtime = Runtime::new().context("an async runtime")?;
    let server = runtime.block_on(start_postgres())?;
    run_on(&runtime, &server, command)
}

/// Runs each bench at its smallest size, on one PostgreSQL, and hands over how it ended.
pub(crate) fn smoke_all(
    tree: &Tree,
    variables: &[(&str, &std::path::Path)],
    mut ended: impl FnMut(&str, anyhow::Result<bool>),
) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("an async runtime")?;
    let server = runtime.block_on(start_postgres())?;
    for name in NAMES {
        let mut command = smoke_command(tree, name);
        command.envs(variables.iter().copied());
        ended(name, run_on(&runtime, &server, command));
    }
    Ok(())
}

async fn start_postgres() -> anyhow::Result<Postgres> {
    Postgres::private(SETTINGS).await
}

/// Runs a bench on an empty database.
fn run_on(runtime: &Runtime, server: &Postgres, mut command: Command) -> anyhow::Result<bool> {
    let database = runtime.block_on(server.try_database())?;
    let status = command.env("DATABASE_URL", database.url()).status().context("cargo bench")?;
    Ok(status.success())
}

/// What is measured is built as it is deployed.
fn full_command(tree: &Tree, name: &str) -> Command {
    let package = match name {
        "bullmq" => "postroom-bullmq",
        "eventlog" => "postroom-eventlog",
        _ => "postroom-relay",
    };
    let mut command = tree.cargo();
    command.args(["bench", "--quiet", "--profile", "dist", "--package", package, "--bench", name]);
    if name == "sinks" {
        command.args(["--features", "kafka"]);
    }
    command.arg("--");
    command
}

/// Built like the tests and with their features, so that hardly anything is built for it alone.
fn smoke_command(tree: &Tree, name: &str) -> Command {
    let mut command = tree.cargo();
    command.args(["bench", "--quiet", "--profile", "dev", "--workspace", "--all-features"]);
    command.args(["--bench", name, "--", SMOKE]);
    command
}
