//! What the triggers cost producers: inserts with them against inserts without.

use crate::figure::Figure;
use crate::size::Size;
use crate::tables::Table;
use serde_json::json;
use std::time::Instant;
use tokio_postgres::Client;

pub(crate) async fn run(url: &str, table: &Table, size: Size) -> anyhow::Result<()> {
    for (name, rows, transactions, figure) in [
        ("singly", 1, size.pick(3_000, 20), format!("{}_producer_single", table.name)),
        ("in bulk", 1_000, size.pick(60, 1), format!("{}_producer_bulk", table.name)),
    ] {
        let mut rounds = Vec::new();
        for round in 0..size.pick(7, 1) {
            let client = table.empty(url).await?;
            // The table as it is after its first minutes, with pages to be used again.
            insert(&client, table, rows, transactions / 2).await?;
            table.settle_down(&client).await?;
            let of = async |with: bool| {
                triggers(&client, table, with).await?;
                insert(&client, table, rows, transactions).await
            };
            // In turns, which of them comes first.
            let (with, without) = if round % 2 == 0 {
                let with = of(true).await?;
                (with, of(false).await?)
            } else {
                let without = of(false).await?;
                (of(true).await?, without)
            };
            triggers(&client, table, true).await?;
            rounds.push((with, without));
        }
        // A figure's name lives as long as the program.
        let figure: &'static str = Box::leak(figure.into_boxed_str());
        Figure {
            bench: "layouts",
            name: figure,
            rounds,
            reference_is: "the same inserts without the triggers",
            unit: "rows/s",
            more_is_better: true,
            notes: json!({ "rows_per_transaction": rows, "inserted": name }),
        }
        .print();
    }
    Ok(())
}

async fn triggers(client: &Client, table: &Table, on: bool) -> anyhow::Result<()> {
    let verb = if on { "ENABLE" } else { "DISABLE" };
    client
        .batch_execute(&format!("ALTER TABLE {} {verb} TRIGGER USER", table.layout.table))
        .await?;
    Ok(())
}

async fn insert(
    client: &Client,
    table: &Table,
    rows: i32,
    transactions: usize,
) -> anyhow::Result<f64> {
    let statement = client.prepare(&table.insert()).await?;
    let started = Instant::now();
    for _ in 0..transactions {
        client.execute(&statement, &[&rows]).await?;
    }
    let inserted = f64::from(rows) * transactions as f64;
    Ok(inserted / started.elapsed().as_secs_f64())
}
