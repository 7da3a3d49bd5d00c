//! From commit to delivery while several producers commit at the same time: what wakes a relay, and what
//! it finds when it looks, must not depend on who is first.

use crate::figure::Figure;
use crate::{Sizes, commit, relay, share};
use async_trait::async_trait;
use postroom_core::{Message, MessageId, Report, Sink};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const COMMITTERS: usize = 8;
/// Between two messages of one committer.
const GAP: Duration = Duration::from_millis(5);
/// What the p99 is compared with, in milliseconds.
const LIMIT: f64 = 10.0;

/// When each message arrived.
#[derive(Clone, Default)]
struct Arrived(Arc<Mutex<HashMap<MessageId, Instant>>>);

#[async_trait]
impl Sink for Arrived {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let now = Instant::now();
        let mut arrived = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, message) in batch.iter().enumerate() {
            arrived.insert(message.id.clone(), now);
            report.delivered(index);
        }
    }
}

/// Measures `messages` of each committer, after some that nobody counts: a relay prepares its statements
/// when it first needs them.
pub(crate) async fn run(url: &str, sizes: &Sizes) -> anyhow::Result<()> {
    let Sizes { messages, warm_up, .. } = *sizes;
    let arrived = Arrived::default();
    let relay = relay(url, "memory:committers", Arc::new(arrived.clone())).await?;
    let task = tokio::spawn(async move { relay.run(std::future::pending()).await });
    let committers: Vec<_> = (0..COMMITTERS)
        .map(|_| tokio::spawn(produce(url.to_owned(), warm_up + messages)))
        .collect();
    let mut committed = Vec::new();
    for committer in committers {
        committed.push(committer.await??);
    }
    let count: usize = committed.iter().map(Vec::len).sum();
    let deadline = Instant::now() + Duration::from_secs(10);
    let all = || arrived.0.lock().unwrap_or_else(PoisonError::into_inner).len() == count;
    while !all() {
        anyhow::ensure!(Instant::now() < deadline, "not all messages arrived");
        tokio::time::sleep(GAP).await;
    }
    task.abort();
    let arrived = arrived.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut times: Vec<f64> = committed
        .iter()
        .flat_map(|committer| &committer[warm_up..])
        .map(|(id, at)| arrived[id].saturating_duration_since(*at).as_secs_f64() * 1_000.0)
        .collect();
    times.sort_by(f64::total_cmp);
    Figure {
        bench: "latency",
        name: "committers",
        rounds: vec![(share(&times, 0.99), LIMIT)],
        reference_is: "the limit",
        unit: "ms from commit to delivery, p99",
        more_is_better: false,
        notes: json!({
            "committers": COMMITTERS, "messages": times.len(),
            "p50_ms": share(&times, 0.5), "max_ms": share(&times, 1.0),
        }),
    }
    .print();
    Ok(())
}

/// Commits messages one by one; their ids, and when each commit was acknowledged.
async fn produce(url: String, messages: usize) -> anyhow::Result<Vec<(MessageId, Instant)>> {
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let mut committed = Vec::with_capacity(messages);
    for _ in 0..messages {
        committed.push(commit(&mut client, "memory:committers").await?);
        tokio::time::sleep(GAP).await;
    }
    Ok(committed)
}
