//! Claim and complete with a long history in the table, against a short one.

use crate::figure::Figure;
use crate::ours::Recording;
use crate::size::Size;
use crate::{bare, outbox};
use serde_json::json;

pub(crate) async fn run(url: &str, size: Size) -> anyhow::Result<()> {
    let (long, short) = (size.pick(2_000_000, 10_000), size.pick(10_000, 1_000));
    let drained = size.pick(50_000, 2_000);
    // Two databases, so that the rounds can alternate.
    let client = outbox::connect(url).await?;
    let mut rounds = vec![];
    let long_url = history(&client, url, "growth_long", long).await?;
    let short_url = history(&client, url, "growth_short", short).await?;
    for round in 0..=size.pick(5, 1) {
        let with_short = drain(&short_url, drained).await?;
        let with_long = drain(&long_url, drained).await?;
        // The first round only warms both up.
        if round > 0 {
            rounds.push((with_long, with_short));
        }
    }
    Figure {
        bench: "relay",
        name: "growth",
        rounds,
        reference_is: "the same with 10 thousand SENT messages in the table",
        unit: "messages/s",
        more_is_better: true,
        notes: json!({ "sent_rows": long, "drained": drained, "event_ids": "UUIDv7" }),
    }
    .print();
    for name in ["growth_long", "growth_short"] {
        client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
    }
    Ok(())
}

async fn drain(url: &str, messages: usize) -> anyhow::Result<f64> {
    let client = outbox::connect(url).await?;
    outbox::add(&client, messages, "noop", "PENDING").await?;
    outbox::settle_down(&client, &["core_outbox.parcel"]).await?;
    bare::drain(url, messages, Recording::AtOnce).await
}

async fn history(
    client: &tokio_postgres::Client,
    url: &str,
    name: &str,
    messages: usize,
) -> anyhow::Result<String> {
    client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    let (server, _) =
        url.rsplit_once('/').ok_or_else(|| anyhow::anyhow!("no database in the URL"))?;
    let url = format!("{server}/{name}");
    outbox::fill(&url, 0).await?;
    let client = outbox::connect(&url).await?;
    outbox::add(&client, messages, "noop", "SENT").await?;
    outbox::settle_down(&client, &["core_outbox.integration_outbox"]).await?;
    Ok(url)
}
