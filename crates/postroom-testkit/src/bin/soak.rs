//! `cargo xtask soak bullmq` in its own program: a readable summary on standard error, one JSON
//! object on standard output; exit code 1 when the books do not balance.

use anyhow::{Context as _, bail};
use postroom_testkit::Bullmq;
use postroom_testkit::soak::Soak;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: soak --postroom PROGRAM [--messages N] [--bullmq 5|6]";

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let soak = read(std::env::args().skip(1))?;
    let soaked = soak.run().await?;
    eprintln!("{soaked}");
    println!("{}", serde_json::to_string(&soaked)?);
    Ok(if soaked.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Soak> {
    let mut soak = Soak { messages: 20_000, postroom: PathBuf::new(), bullmq: Bullmq::V6 };
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match (name.as_str(), value.as_str()) {
            ("--messages", number) => {
                soak.messages = number.parse().context("--messages is no number")?;
            }
            ("--bullmq", "5") => soak.bullmq = Bullmq::V5,
            ("--bullmq", "6") => soak.bullmq = Bullmq::V6,
            ("--postroom", path) => {
                soak.postroom = std::fs::canonicalize(path).with_context(|| path.to_owned())?;
            }
            _ => bail!("{name} {value} is unknown\n{USAGE}"),
        }
    }
    if soak.postroom.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    Ok(soak)
}
