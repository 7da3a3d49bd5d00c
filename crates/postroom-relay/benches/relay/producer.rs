//! What the triggers cost producers: inserts with them against inserts without.

use crate::figure::Figure;
use crate::outbox::{connect, fill};
use crate::size::Size;
use serde_json::json;
use std::time::Instant;

const BULK_ROWS: usize = 1_000;
/// As a client sends rows of its own: ids, streams and payloads, in the seed's columns.
const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT stream, event, 'noop', 'order.created.v1', payload::jsonb
    FROM unnest($1::text[], $2::text[], $3::text[]) AS row (stream, event, payload)";

/// What the outbox went through before.
#[derive(Clone, Copy)]
enum Past {
    /// As many messages as are inserted now were delivered, and their parcels' space is free
    /// again: the state of every outbox after its first minutes.
    InUse,
    /// Nothing: every page is new.
    Empty,
}

pub(crate) async fn run(url: &str, size: Size) -> anyhow::Result<()> {
    let (singles, bulks) = (size.pick(500, 20), size.pick(15, 1));
    for (name, transactions, rows, past) in [
        ("producer_single", singles, 1, Past::InUse),
        ("producer_bulk", bulks, BULK_ROWS, Past::InUse),
        ("producer_first_fill", bulks, BULK_ROWS, Past::Empty),
    ] {
        let mut rounds = vec![];
        for round in 0..=size.pick(25, 1) {
            let with = insert(url, "ENABLE", transactions, rows, past).await?;
            let without = insert(url, "DISABLE", transactions, rows, past).await?;
            // The first round only warms both up.
            if round > 0 {
                rounds.push((with, without));
            }
        }
        Figure {
            bench: "relay",
            name,
            rounds,
            reference_is: "the same inserts with the triggers off",
            unit: "rows/s",
            more_is_better: true,
            notes: json!({ "transactions": transactions, "rows_each": rows, "payload_bytes": 300 }),
        }
        .print();
    }
    Ok(())
}

/// Inserts with the outbox's triggers on or off, in rows per second.
async fn insert(
    url: &str,
    triggers: &str,
    transactions: usize,
    rows: usize,
    past: Past,
) -> anyhow::Result<f64> {
    let client = connect(url).await?;
    match past {
        Past::Empty => fill(url, 0).await?,
        Past::InUse => {
            fill(url, transactions * rows).await?;
            client.batch_execute("DELETE FROM core_outbox.parcel").await?;
            client.batch_execute("VACUUM (TRUNCATE off) core_outbox.parcel").await?;
        }
    }
    let set =
        |verb: &str| format!("ALTER TABLE core_outbox.integration_outbox {verb} TRIGGER USER");
    client.batch_execute(&set(triggers)).await?;
    let statement = client.prepare(INSERT).await?;
    let batches: Vec<[Vec<String>; 3]> = (0..transactions).map(|_| batch(rows)).collect();
    let started = Instant::now();
    for [streams, events, payloads] in &batches {
        client.execute(&statement, &[streams, events, payloads]).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    client.batch_execute(&set("ENABLE")).await?;
    Ok((transactions as f64) * (rows as f64) / seconds)
}

fn batch(rows: usize) -> [Vec<String>; 3] {
    let payload = |n| json!({ "orderId": n, "note": "x".repeat(265) }).to_string();
    [
        (0..rows).map(|n| format!("order-{n}")).collect(),
        (0..rows).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
        (0..rows).map(payload).collect(),
    ]
}
