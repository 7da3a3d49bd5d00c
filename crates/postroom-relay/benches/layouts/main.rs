//! `cargo xtask bench layouts`: tables that somebody else made, on PostgreSQL. What a relay delivers of each, against
//! the store's own statements for it in a bare loop; and what the triggers cost its producers.

#[path = "../bench/bare_loop.rs"]
mod bare_loop;
#[path = "../bench/counting.rs"]
mod counting;
#[path = "../bench/figure.rs"]
mod figure;
#[path = "../bench/size.rs"]
mod size;

mod bare;
mod ours;
mod poller;
mod producer;
mod tables;

use figure::{Figure, median};
use serde_json::json;
use size::Size;
use std::env;
use tables::Table;

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 1_000;

fn main() -> anyhow::Result<()> {
    let url = env::var("DATABASE_URL").map_err(|_| {
        anyhow::anyhow!("run this through `cargo xtask bench layouts`, which starts PostgreSQL")
    })?;
    let size = Size::asked_for();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&url, size))
}

async fn run(url: &str, size: Size) -> anyhow::Result<()> {
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    for table in tables::all()? {
        if only.as_deref().is_some_and(|only| only != table.name) {
            continue;
        }
        throughput(url, &table, size).await?;
        producer::run(url, &table, size).await?;
    }
    Ok(())
}

async fn throughput(url: &str, table: &Table, size: Size) -> anyhow::Result<()> {
    let rows = size.pick(200_000, 2_000);
    let (mut rounds, mut against_poller) = (vec![], vec![]);
    for round in 1..=size.pick(5, 1) {
        table.fill(url, rows).await?;
        let ours = ours::drain(url, table, rows).await?;
        table.fill(url, rows).await?;
        let bare = bare::drain(url, table, rows).await?;
        table.fill(url, rows).await?;
        let poller = poller::drain(url, table, rows).await?;
        eprintln!(
            "round {round} of {}: relay {ours:.0}/s, bare {bare:.0}/s, the owner's poller {poller:.0}/s",
            table.name
        );
        rounds.push((ours, bare));
        against_poller.push(ours / poller);
    }
    let against_poller = (median(against_poller) * 1_000.0).round() / 1_000.0;
    Figure {
        bench: "layouts",
        name: table.name,
        rounds,
        reference_is: "the store's statements for this table in a bare loop, on as many connections",
        unit: "rows/s",
        more_is_better: true,
        notes: json!({
            "rows": rows, "batch": BATCH, "payload_bytes": 300, "against_a_poller": against_poller,
            "poller": "SELECT … FOR UPDATE SKIP LOCKED and one UPDATE or DELETE per batch, two connections",
        }),
    }
    .print();
    Ok(())
}
