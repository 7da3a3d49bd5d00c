//! `cargo xtask bench latency`: from commit to delivery, with an idle relay on PostgreSQL.

#[path = "../bench/figure.rs"]
mod figure;
#[path = "../bench/size.rs"]
mod size;
#[path = "../bench/usage.rs"]
mod usage;

mod committers;
mod receiver;

use anyhow::Context as _;
use async_trait::async_trait;
use figure::Figure;
use postroom_core::{Message, MessageId, Report, Sink};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::{WebhookConfig, WebhookSink};
use postroom_store::{OpenOptions, open};
use serde_json::json;
use size::Size;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_postgres::{Client, NoTls};

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Between two messages, so that the relay is idle again.
const GAP: Duration = Duration::from_millis(20);

/// How much is measured.
struct Sizes {
    messages: usize,
    warm_up: usize,
    idle: Duration,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL")
        .context("run this through `cargo xtask bench latency`, which starts PostgreSQL")?;
    postroom_store::migrate(&url).await?;
    let size = Size::asked_for();
    let sizes = Sizes {
        messages: size.pick(500, 10),
        warm_up: size.pick(50, 2),
        idle: Duration::from_secs(size.pick(10, 1) as u64),
    };
    in_process(&url, &sizes).await?;
    webhook(&url, &sizes).await?;
    committers::run(&url, &sizes).await
}

/// Tells when each message arrives.
struct Arrivals(mpsc::UnboundedSender<Instant>);

#[async_trait]
impl Sink for Arrivals {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let now = Instant::now();
        for index in 0..batch.len() {
            let _ = self.0.send(now);
            report.delivered(index);
        }
    }
}

async fn in_process(url: &str, sizes: &Sizes) -> anyhow::Result<()> {
    let (sender, arrivals) = mpsc::unbounded_channel();
    let relay = relay(url, "memory", Arc::new(Arrivals(sender))).await?;
    let running = Arc::clone(&relay);
    let task = tokio::spawn(async move { running.run(std::future::pending()).await });
    let times = measure(url, "memory", arrivals, sizes).await?;
    let idle = idle_cpu(sizes.idle).await;
    task.abort();
    report("in_process", &times, 1.5, json!({ "idle_cpu_percent_of_a_core": idle }));
    Figure {
        bench: "latency",
        name: "idle_cpu",
        rounds: vec![(idle, 1.0)],
        reference_is: "the limit",
        unit: "% of a core while idle, polling every 100 ms",
        more_is_better: false,
        notes: json!({ "seconds": sizes.idle.as_secs() }),
    }
    .print();
    Ok(())
}

async fn webhook(url: &str, sizes: &Sizes) -> anyhow::Result<()> {
    let (address, arrivals) = receiver::start().await?;
    let config = WebhookConfig::new(&format!("http://{address}/hook"))
        .and_then(|config| config.allow("127.0.0.0/8"))
        .map_err(anyhow::Error::msg)?;
    let sink = WebhookSink::new(config)?;
    let relay = relay(url, "webhook:loopback", Arc::new(sink)).await?;
    let task = tokio::spawn(async move { relay.run(std::future::pending()).await });
    let times = measure(url, "webhook:loopback", arrivals, sizes).await?;
    task.abort();
    report("webhook", &times, 3.0, json!({}));
    Ok(())
}

async fn relay(url: &str, integration: &str, sink: Arc<dyn Sink>) -> anyhow::Result<Arc<Relay>> {
    let store = open(url, &OpenOptions::default()).await?;
    Ok(Arc::new(Relay::new(store, Settings::default(), vec![Lane::new(integration, sink)])))
}

/// Commits one message at a time and notes how long each takes to arrive, in milliseconds.
async fn measure(
    url: &str,
    integration: &str,
    mut arrivals: mpsc::UnboundedReceiver<Instant>,
    sizes: &Sizes,
) -> anyhow::Result<Vec<f64>> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let mut times = Vec::with_capacity(sizes.messages);
    for n in 0..sizes.warm_up + sizes.messages {
        let (_, committed) = commit(&mut client, integration).await?;
        let arrived = arrivals.recv().await.context("the relay ended")?;
        if n >= sizes.warm_up {
            times.push(arrived.saturating_duration_since(committed).as_secs_f64() * 1_000.0);
        }
        tokio::time::sleep(GAP).await;
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Commits one message; its id, and when the commit was acknowledged.
async fn commit(client: &mut Client, integration: &str) -> anyhow::Result<(MessageId, Instant)> {
    let mut tx = client.transaction().await?;
    let message = postroom::NewMessage::new(integration, "order.created.v1")
        .json(&json!({ "note": "x".repeat(280) }));
    let enqueued = postroom::enqueue(&mut tx, message).await?;
    let commit = tx.commit();
    commit.await?;
    Ok((enqueued.into_id(), Instant::now()))
}

async fn idle_cpu(time: Duration) -> f64 {
    let before = usage::cpu_seconds();
    tokio::time::sleep(time).await;
    (usage::cpu_seconds() - before) / time.as_secs_f64() * 100.0
}

/// The time that a share of them did not exceed, of times in order.
fn share(times: &[f64], share: f64) -> f64 {
    times[((times.len() - 1) as f64 * share) as usize]
}

fn report(name: &'static str, times: &[f64], limit: f64, mut notes: serde_json::Value) {
    let at = |part| share(times, part);
    notes["p99_ms"] = json!(at(0.99));
    notes["max_ms"] = json!(at(1.0));
    notes["messages"] = json!(times.len());
    eprintln!("{name}: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms", at(0.5), at(0.99), at(1.0));
    Figure {
        bench: "latency",
        name,
        rounds: vec![(at(0.5), limit)],
        reference_is: "the limit",
        unit: "ms from commit to delivery, p50",
        more_is_better: false,
        notes,
    }
    .print();
}
