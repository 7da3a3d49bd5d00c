//! The same statements in a bare loop: the same number of connections take and complete, with
//! as many batches under way as the relay has, and nothing else.

use crate::BATCH;
use crate::outbox::connect;
use chrono::{DateTime, Utc};
use futures_util::future::{join3, join4};
use postroom_store::postgres::statements::{BEGIN, FORGET_CLAIM, SETTLE_SENT, TAKE};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use uuid::Uuid;

/// The relay takes on two connections and completes on two.
const PAIRS: usize = 2;

pub(crate) async fn drain(url: &str, messages: usize) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..PAIRS {
        connections.push((connect(url).await?, connect(url).await?));
    }
    let started = Instant::now();
    let mut tasks = Vec::new();
    for (taking, completing) in connections {
        let (hand_over, batches) = mpsc::channel(1);
        let taker = tokio::spawn(take(taking, hand_over));
        tasks.push((taker, tokio::spawn(complete(completing, batches))));
    }
    let mut done = 0;
    for (taker, completer) in tasks {
        taker.await??;
        done += completer.await??;
    }
    anyhow::ensure!(done == messages, "{done} of {messages} were completed");
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

async fn take(client: Client, hand_over: mpsc::Sender<(Uuid, Vec<i64>)>) -> anyhow::Result<()> {
    let statement = client.prepare(TAKE).await?;
    let quota = i32::try_from(BATCH)?;
    let mut mark = (DateTime::<Utc>::UNIX_EPOCH, 0i64);
    loop {
        let token = Uuid::new_v4();
        let (begun, rows, committed) = join3(
            client.batch_execute(BEGIN),
            client.query(
                &statement,
                &[
                    &(256i32 << 10),
                    &token,
                    &"bare",
                    &30.0f64,
                    &vec!["noop"],
                    &vec![quota],
                    &vec![mark.0],
                    &vec![mark.1],
                    &i64::from(quota),
                    &(4i64 << 20),
                    &false,
                ],
            ),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        committed?;
        let rows = rows?;
        if rows.is_empty() {
            return Ok(());
        }
        let places = rows.iter().map(|row| (row.get("delivery_due_at"), row.get("seq")));
        mark = places.max().unwrap_or(mark);
        let seqs = rows.iter().map(|row| row.get("seq")).collect();
        hand_over.send((token, seqs)).await?;
    }
}

async fn complete(
    client: Client,
    mut batches: mpsc::Receiver<(Uuid, Vec<i64>)>,
) -> anyhow::Result<usize> {
    let sent = client.prepare(SETTLE_SENT).await?;
    let forget = client.prepare(FORGET_CLAIM).await?;
    let mut done = 0;
    while let Some((token, seqs)) = batches.recv().await {
        let (begun, marked, forgotten, committed) = join4(
            client.batch_execute(BEGIN),
            client.query(&sent, &[&token, &seqs]),
            client.query(&forget, &[&token]),
            client.batch_execute("COMMIT"),
        )
        .await;
        begun?;
        forgotten?;
        committed?;
        done += marked?.len();
    }
    Ok(done)
}
