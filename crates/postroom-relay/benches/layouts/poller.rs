//! What a table's owner would write at best: a loop that locks open rows, reads them, and writes them back.

use crate::BATCH;
use crate::tables::{Table, connect};
use std::time::Instant;
use tokio_postgres::Client;

const CONNECTIONS: usize = 2;

pub(crate) async fn drain(url: &str, table: &Table, rows: usize) -> anyhow::Result<f64> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(connect(url).await?);
    }
    let statement = statement(table);
    let started = Instant::now();
    let mut tasks = Vec::new();
    for client in clients {
        tasks.push(tokio::spawn(poll(client, statement.clone())));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    anyhow::ensure!(done == rows, "{done} of {rows} were delivered");
    Ok(rows as f64 / started.elapsed().as_secs_f64())
}

/// One statement that locks, reads and writes: the rows are locked until the commit that follows.
fn statement(table: &Table) -> String {
    let (name, key, open) = (&table.layout.table, table.key(), table.open);
    let picked =
        format!("SELECT {key} FROM {name} WHERE {open} LIMIT {BATCH} FOR UPDATE SKIP LOCKED");
    let among = format!("WHERE {key} = ANY (ARRAY({picked})) RETURNING *");
    match table.sent {
        Some(set) => format!("UPDATE {name} SET {set} {among}"),
        None => format!("DELETE FROM {name} {among}"),
    }
}

async fn poll(client: Client, statement: String) -> anyhow::Result<usize> {
    // The ledger's triggers are not the poller's to pay for.
    client.batch_execute("SET core_outbox.relay = 'on'; SET synchronous_commit = off").await?;
    let statement = client.prepare(&statement).await?;
    let mut done = 0;
    loop {
        let rows = client.query(&statement, &[]).await?;
        if rows.is_empty() {
            return Ok(done);
        }
        done += rows.len();
    }
}
