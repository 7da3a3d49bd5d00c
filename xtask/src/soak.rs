//! `cargo xtask soak bullmq`: the transport through BullMQ on an optimised build of the program.
//! `cargo xtask soak store`: the stress run of the ledger, for minutes and by several seeds.
//! `cargo xtask soak eventlog`: the event log with eight writers, whose server is killed 50 times.

use crate::chaos::build;
use crate::test::install_packages;
use crate::tree::Tree;
use anyhow::Context as _;

/// How long one stress run of the ledger lasts here, and how many there are.
const STRESS_SECONDS: u32 = 75;
const STRESS_RUNS: u32 = 4;

/// The stress run that the tests do in seconds. Says whether no book complained.
pub(crate) fn store(first_seed: u32) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    install_packages(&tree);
    let mut is_good = true;
    for seed in first_seed..first_seed + STRESS_RUNS {
        eprintln!("seed {seed}, {STRESS_SECONDS} s");
        let status = tree
            .cargo()
            .args(["test", "--quiet", "--release", "--package", "postroom-store", "--test", "main"])
            .args(["--", "--nocapture", "ledger_stress"])
            .env("LEDGER_STRESS_SEED", seed.to_string())
            .env("LEDGER_STRESS_SECONDS", STRESS_SECONDS.to_string())
            .status()
            .context("running the stress test")?;
        is_good &= status.success();
    }
    Ok(is_good)
}

/// How often the server of the event log is killed here.
const KILLS: &str = "50";

/// The crash test of the event log that the tests do with fewer kills. Says whether nothing was
/// lost, doubled or moved.
pub(crate) fn eventlog(seed: Option<&str>) -> anyhow::Result<bool> {
    let tree = Tree::find()?;
    install_packages(&tree);
    let mut command = tree.cargo();
    command
        .args(["test", "--quiet", "--release", "--package", "postroom-cli", "--test", "main"])
        .args(["--no-default-features", "--features", "eventlog"])
        .args(["--", "--nocapture", "eventlog_crash"])
        .env("EVENTLOG_KILLS", KILLS);
    if let Some(seed) = seed {
        command.env("EVENTLOG_SEED", seed);
    }
    Ok(command.status().context("running the crash test")?.success())
}

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
