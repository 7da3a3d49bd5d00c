//! `cargo xtask chaos` in its own program: a readable summary on standard error, one JSON object
//! on standard output; exit code 1 when the books do not balance.

use anyhow::{Context as _, bail};
use postroom_testkit::chaos::{Chaos, Database};
use std::process::ExitCode;

const USAGE: &str = "\
usage: chaos --postroom PROGRAM [--messages N] [--faults N] [--seed S|random] \
[--database postgres|mariadb|galera|sqlite]";

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let chaos = read(std::env::args().skip(1))?;
    let balance = chaos.run().await?;
    eprintln!("{balance}");
    println!("{}", serde_json::to_string(&balance)?);
    Ok(if balance.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A seed that nobody chose, short enough to be typed again.
fn draw() -> u64 {
    let seed = rand::random_range(0..1_000_000);
    eprintln!("seed {seed}");
    seed
}

fn read(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Chaos> {
    let mut chaos = Chaos {
        messages: 100_000,
        faults: 50,
        seed: 1,
        database: Database::Postgres,
        postroom: std::path::PathBuf::new(),
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        let number = || value.parse().with_context(|| format!("{name} {value} is no number"));
        match name.as_str() {
            "--messages" => chaos.messages = number()?,
            "--faults" => chaos.faults = number()?,
            "--seed" if value == "random" => chaos.seed = draw(),
            "--seed" => {
                chaos.seed = value.parse().context("--seed is neither a number nor random")?;
            }
            "--database" => {
                chaos.database = Database::parse(&value).context("--database is unknown")?;
            }
            "--postroom" => {
                chaos.postroom = std::fs::canonicalize(&value).with_context(|| value.clone())?;
            }
            _ => bail!("{name} is unknown\n{USAGE}"),
        }
    }
    if chaos.postroom.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    Ok(chaos)
}
