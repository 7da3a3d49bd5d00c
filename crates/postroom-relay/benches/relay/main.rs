//! `cargo xtask bench relay`: throughput against bare statements, on PostgreSQL.

#[path = "../bench/bare_loop.rs"]
mod bare_loop;
#[path = "../bench/counting.rs"]
mod counting;
#[path = "../bench/figure.rs"]
mod figure;
#[path = "../bench/size.rs"]
mod size;
#[path = "../bench/usage.rs"]
mod usage;

mod bare;
mod growth;
mod ours;
mod outbox;
mod producer;
mod rows;
mod seed;
mod singles;

use figure::{Figure, median};
use ours::Recording;
use serde_json::json;
use size::Size;
use std::env;

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 1_000;

/// How many messages are drained per round. Enough that the relay's start, with its connections and plans,
/// counts for little: it takes some 60 ms.
fn messages(size: Size) -> usize {
    size.pick(400_000, 3_000)
}

fn main() -> anyhow::Result<()> {
    let url = env::var("DATABASE_URL").map_err(|_| {
        anyhow::anyhow!("run this through `cargo xtask bench relay`, which starts PostgreSQL")
    })?;
    let size = Size::asked_for();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // A child of its own, so that its peak memory is the relay's alone.
    if env::args().any(|arg| arg == "--drain") {
        let recording = Recording::asked_for();
        return runtime.block_on(ours::drain_and_print(&url, drained()?, recording));
    }
    runtime.block_on(run(&url, size))
}

/// How many messages a child is to drain.
fn drained() -> anyhow::Result<usize> {
    let number = env::args().skip_while(|arg| arg != "--drain").nth(1);
    Ok(number.ok_or_else(|| anyhow::anyhow!("--drain takes a number"))?.parse()?)
}

async fn run(url: &str, size: Size) -> anyhow::Result<()> {
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("relay") || wanted("seed") {
        throughput(url, size).await?;
    }
    if wanted("singles") {
        singles::run(url, size).await?;
    }
    if wanted("growth") {
        growth::run(url, size).await?;
    }
    if wanted("producer") {
        producer::run(url, size).await?;
    }
    Ok(())
}

async fn throughput(url: &str, size: Size) -> anyhow::Result<()> {
    let messages = messages(size);
    let (mut against_bare, mut against_seed, mut memory) = (vec![], vec![], vec![]);
    let (mut in_background, mut bare_to_seed, mut bare_in_background) = (vec![], vec![], vec![]);
    let mut recorded = vec![];
    for round in 1..=size.pick(5, 1) {
        outbox::fill(url, messages).await?;
        let ours = ours::drain_in_child(url, messages, Recording::AtOnce)?;
        outbox::fill(url, messages).await?;
        let bare = bare::drain(url, messages, Recording::AtOnce).await?;
        seed::fill(url, messages).await?;
        let seed = seed::drain(url, messages).await?;
        outbox::fill(url, messages).await?;
        let noting = ours::drain_in_child(url, messages, Recording::Background)?;
        recorded.push(ours::record(url).await?);
        outbox::fill(url, messages).await?;
        let bare_noting = bare::drain(url, messages, Recording::Background).await?;
        eprintln!(
            "round {round}: relay {:.0}/s, bare {bare:.0}/s, seed {seed:.0}/s; in the background: \
             relay {:.0}/s, bare {bare_noting:.0}/s",
            ours.rate, noting.rate
        );
        against_bare.push((ours.rate, bare));
        against_seed.push((ours.rate, seed));
        in_background.push((noting.rate, seed));
        bare_to_seed.push(bare / seed);
        bare_in_background.push(bare_noting / seed);
        memory.push((ours.peak_mib, 64.0));
    }
    let ratio = |ratios| (median(ratios) * 1_000.0).round() / 1_000.0;
    let notes = |bare: f64| {
        json!({
            "messages": messages, "batch": BATCH, "payload_bytes": 300, "bare_to_seed": bare,
        })
    };
    let throughput = |name, rounds, reference_is, notes| Figure {
        bench: "relay",
        name,
        rounds,
        reference_is,
        unit: "messages/s",
        more_is_better: true,
        notes,
    };
    let at_once = notes(ratio(bare_to_seed));
    let mut background = notes(ratio(bare_in_background));
    background["recorded_later_per_s"] = json!(median(recorded).round());
    throughput(
        "relay",
        against_bare,
        "the store's statements in a bare loop, on as many connections",
        at_once.clone(),
    )
    .print();
    let seed = "the seed's table and statements, batches of 1,000, two connections, bare";
    throughput("seed", against_seed, seed, at_once).print();
    throughput("seed_background", in_background, seed, background).print();
    Figure {
        bench: "relay",
        name: "memory",
        rounds: memory,
        reference_is: "the limit",
        unit: "MiB at peak",
        more_is_better: false,
        notes: json!({ "backlog": messages }),
    }
    .print();
    Ok(())
}
