//! Filling Postroom's own tables.

use anyhow::Context as _;
use tokio_postgres::{Client, NoTls};

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("connecting")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Empties the outbox and fills it with `messages` of about 300 bytes of payload.
pub(crate) async fn fill(url: &str, messages: usize) -> anyhow::Result<()> {
    let client = empty(url).await?;
    add(&client, messages, "noop", "PENDING").await?;
    settle_down(&client, TABLES).await
}

/// The message table and what is made for each message.
pub(crate) const TABLES: &[&str] =
    &["core_outbox.integration_outbox", "core_outbox.parcel", "core_outbox.delivery"];

/// An outbox without messages.
pub(crate) async fn empty(url: &str) -> anyhow::Result<Client> {
    postroom_store::migrate(url).await?;
    let client = connect(url).await?;
    client
        .batch_execute(
            "TRUNCATE core_outbox.integration_outbox, core_outbox.parcel, core_outbox.delivery,
                      core_outbox.claim, core_outbox.lane_cursor, core_outbox.pending_edit,
                      core_outbox.sent",
        )
        .await?;
    Ok(client)
}

/// Leaves nothing to do in the background that could fall into a measurement.
pub(crate) async fn settle_down(client: &Client, tables: &[&str]) -> anyhow::Result<()> {
    for table in tables {
        client.batch_execute(&format!("VACUUM ANALYZE {table}")).await?;
    }
    client.batch_execute("CHECKPOINT").await.context("checkpoint")
}

pub(crate) async fn add(
    client: &Client,
    messages: usize,
    integration: &str,
    status: &str,
) -> anyhow::Result<()> {
    client
        .batch_execute(&format!(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, status)
             SELECT 'order-' || n, core_outbox.uuid_v7()::text, '{integration}', 'order.created.v1',
                    jsonb_build_object('orderId', n, 'note', repeat('x', 265)), '{status}'
             FROM generate_series(1, {messages}) n"
        ))
        .await
        .context("filling the outbox")
}
