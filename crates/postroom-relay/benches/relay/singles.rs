//! Messages that were committed one by one: a parcel each, against a row of its own for each.

use crate::figure::Figure;
use crate::ours::Recording;
use crate::size::Size;
use crate::{BATCH, bare, ours, outbox, rows};
use anyhow::Context as _;
use serde_json::json;
use tokio_postgres::Client;

pub(crate) async fn run(url: &str, size: Size) -> anyhow::Result<()> {
    let messages = size.pick(100_000, 1_000);
    let (mut rounds, mut relay) = (vec![], vec![]);
    for round in 1..=size.pick(5, 1) {
        fill(url, messages).await?;
        relay.push(ours::drain_in_child(url, messages, Recording::AtOnce)?.rate);
        fill(url, messages).await?;
        let bare = bare::drain(url, messages, Recording::AtOnce).await?;
        rows::fill(url, messages).await?;
        let rows = rows::drain(url, messages).await?;
        eprintln!("round {round}: bare {bare:.0}/s, a row per message {rows:.0}/s");
        rounds.push((bare, rows));
    }
    relay.sort_by(f64::total_cmp);
    let relay = relay.get(relay.len() / 2).copied().unwrap_or_default();
    Figure {
        bench: "relay",
        name: "singles",
        rounds,
        reference_is: "a row per message that is claimed and deleted, as before the ledger, bare",
        unit: "messages/s",
        more_is_better: true,
        notes: json!({
            "messages": messages, "batch": BATCH, "payload_bytes": 300,
            "relay": relay.round(),
        }),
    }
    .print();
    Ok(())
}

/// Empties the outbox and fills it with messages that were committed one by one.
async fn fill(url: &str, messages: usize) -> anyhow::Result<()> {
    let client = outbox::empty(url).await?;
    singly(&client, "core_outbox.integration_outbox", messages).await?;
    outbox::settle_down(&client, outbox::TABLES).await
}

/// Inserts messages into a table with the outbox's columns: one row per statement and commit, none of
/// which waits for the disk.
pub(crate) async fn singly(client: &Client, table: &str, messages: usize) -> anyhow::Result<()> {
    client.batch_execute("SET synchronous_commit = off").await?;
    client
        .batch_execute(&format!(
            "DO $$ BEGIN FOR n IN 1..{messages} LOOP
                 INSERT INTO {table}
                     (source_stream_id, source_event_id, integration_type, event_type, payload)
                 VALUES ('order-' || n, core_outbox.uuid_v7()::text, 'noop', 'order.created.v1',
                         jsonb_build_object('orderId', n, 'note', repeat('x', 265)));
                 COMMIT;
             END LOOP; END $$"
        ))
        .await
        .context("filling the outbox one by one")
}
