//! Claim and complete with a long history in the table, against a short one.

use crate::figure::Figure;
use crate::{bare, outbox};
use serde_json::json;

const LONG: usize = 2_000_000;
const SHORT: usize = 10_000;
const DRAINED: usize = 50_000;
const ROUNDS: usize = 5;

pub(crate) async fn run(url: &str) -> anyhow::Result<()> {
    // Two databases, so that the rounds can alternate.
    let client = outbox::connect(url).await?;
    let mut rounds = vec![];
    let long_url = history(&client, url, "growth_long", LONG).await?;
    let short_url = history(&client, url, "growth_short", SHORT).await?;
    for round in 0..=ROUNDS {
        let short = drain(&short_url).await?;
        let long = drain(&long_url).await?;
        // The first round only warms both up.
        if round > 0 {
            rounds.push((long, short));
        }
    }
    Figure {
        bench: "relay",
        name: "growth",
        rounds,
        reference_is: "the same with 10 thousand SENT messages in the table",
        unit: "messages/s",
        more_is_better: true,
        notes: json!({ "sent_rows": LONG, "drained": DRAINED, "event_ids": "UUIDv7" }),
    }
    .print();
    for name in ["growth_long", "growth_short"] {
        client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
    }
    Ok(())
}

async fn drain(url: &str) -> anyhow::Result<f64> {
    let client = outbox::connect(url).await?;
    outbox::add(&client, DRAINED, "noop", "PENDING").await?;
    outbox::settle_down(&client, &["core_outbox.delivery"]).await?;
    bare::drain(url, DRAINED).await
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
