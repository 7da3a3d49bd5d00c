//! `cargo xtask bench relay`: throughput against bare statements, on PostgreSQL.

#[path = "../bench/figure.rs"]
mod figure;
#[path = "../bench/usage.rs"]
mod usage;

mod bare;
mod growth;
mod ours;
mod outbox;
mod producer;
mod seed;

use figure::Figure;
use serde_json::json;
use std::env;

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MESSAGES: usize = 200_000;
const BATCH: usize = 1_000;
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    let url = env::var("DATABASE_URL").map_err(|_| {
        anyhow::anyhow!("run this through `cargo xtask bench relay`, which starts PostgreSQL")
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // A child of its own, so that its peak memory is the relay's alone.
    if env::args().any(|arg| arg == "--drain") {
        return runtime.block_on(ours::drain_and_print(&url));
    }
    runtime.block_on(run(&url))
}

async fn run(url: &str) -> anyhow::Result<()> {
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("relay") || wanted("seed") {
        throughput(url).await?;
    }
    if wanted("growth") {
        growth::run(url).await?;
    }
    if wanted("producer") {
        producer::run(url).await?;
    }
    Ok(())
}

async fn throughput(url: &str) -> anyhow::Result<()> {
    let (mut against_bare, mut against_seed, mut memory) = (vec![], vec![], vec![]);
    for round in 1..=ROUNDS {
        outbox::fill(url, MESSAGES).await?;
        let ours = ours::drain_in_child(url)?;
        outbox::fill(url, MESSAGES).await?;
        let bare = bare::drain(url, MESSAGES).await?;
        seed::fill(url, MESSAGES).await?;
        let seed = seed::drain(url, MESSAGES).await?;
        eprintln!("round {round}: relay {:.0}/s, bare {bare:.0}/s, seed {seed:.0}/s", ours.rate);
        against_bare.push((ours.rate, bare));
        against_seed.push((ours.rate, seed));
        memory.push((ours.peak_mib, 64.0));
    }
    let notes = json!({ "messages": MESSAGES, "batch": BATCH, "payload_bytes": 300 });
    let throughput = |name, rounds, reference_is| Figure {
        bench: "relay",
        name,
        rounds,
        reference_is,
        unit: "messages/s",
        more_is_better: true,
        notes: notes.clone(),
    };
    throughput("relay", against_bare, "the same statements bare, on as many connections").print();
    throughput(
        "seed",
        against_seed,
        "the seed's table and statements, batches of 1,000, two connections, bare",
    )
    .print();
    Figure {
        bench: "relay",
        name: "memory",
        rounds: memory,
        reference_is: "the limit",
        unit: "MiB at peak",
        more_is_better: false,
        notes: json!({ "backlog": MESSAGES }),
    }
    .print();
    Ok(())
}
