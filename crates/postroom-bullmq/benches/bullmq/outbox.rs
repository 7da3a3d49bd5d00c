//! From PostgreSQL through a queue to a sink that accepts everything, beside direct delivery.

#[path = "../../../postroom-relay/benches/relay/outbox.rs"]
mod filling;

use crate::server::Server;
use filling::{connect, fill};
use postroom_bullmq::{
    Delivery, JobData, Part, QueueLane, QueuePattern, TenantRates, Transport, Workers,
};
use postroom_core::{RetryPolicy, Sink, Store};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::NoopSink;
use postroom_store::OpenOptions;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_postgres::Client;

const CONCURRENCY: usize = 200;

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Messages per second through the queue, and delivered directly.
pub(crate) async fn round(
    url: &str,
    server: &Server,
    messages: usize,
) -> anyhow::Result<(f64, f64)> {
    Ok((through_queue(url, server, messages).await?, directly(url, messages).await?))
}

async fn through_queue(url: &str, server: &Server, messages: usize) -> anyhow::Result<f64> {
    let redis = server.queue.redis().clone();
    let store = open(url).await?;
    let sink: Arc<dyn Sink> = Arc::new(NoopSink);
    let timeout = Duration::from_secs(30);
    let delivery = Delivery { sink, concurrency: CONCURRENCY, timeout, rate: None };
    let lane = QueueLane {
        integration: "noop".to_owned(),
        queue: QueuePattern::default(),
        data: JobData::Full,
        outstanding_max: 5_000,
        retry: RetryPolicy::default(),
        workers: Workers::Own(delivery),
    };
    let relay = Relay::new(Arc::clone(&store), settings(), Vec::new());
    let counters = relay.counters();
    let tenants = TenantRates::default();
    let transport = Transport::new(store, redis, settings(), vec![lane], tenants, counters);
    measure(url, messages, move |mut stop| {
        Box::pin(async move {
            let mut stop_too = stop.clone();
            let queued = transport.run(Part::Relay, async move {
                let _ = stop.wait_for(|stop| *stop).await;
            });
            let upkeep = relay.run(async move {
                let _ = stop_too.wait_for(|stop| *stop).await;
            });
            let (upkeep, queued) = tokio::join!(upkeep, queued);
            upkeep?;
            Ok(queued?)
        })
    })
    .await
}

async fn directly(url: &str, messages: usize) -> anyhow::Result<f64> {
    let lane = Lane { batch_size: settings().batch_size, ..Lane::new("noop", Arc::new(NoopSink)) };
    let relay = Relay::new(open(url).await?, settings(), vec![lane]);
    measure(url, messages, move |mut stop| {
        Box::pin(async move {
            let stop = async move {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            Ok(relay.run(stop).await?)
        })
    })
    .await
}

fn settings() -> Settings {
    Settings { batch_size: 1_000, ..Settings::default() }
}

async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    postroom_store::migrate(url).await?;
    Ok(postroom_store::open(url, &OpenOptions::default()).await?)
}

/// From the start until everything is SENT.
async fn measure(
    url: &str,
    messages: usize,
    run: impl FnOnce(watch::Receiver<bool>) -> Running,
) -> anyhow::Result<f64> {
    fill(url, messages).await?;
    let client = connect(url).await?;
    let (stop, stopped) = watch::channel(false);
    let began = Instant::now();
    let running = tokio::spawn(run(stopped));
    while is_open(&client).await? {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    stop.send_replace(true);
    running.await??;
    Ok(messages as f64 / seconds)
}

async fn is_open(client: &Client) -> anyhow::Result<bool> {
    let open = "SELECT EXISTS (SELECT FROM core_outbox.delivery)
                OR EXISTS (SELECT FROM core_outbox.parcel)";
    let row = client.query_one(open, &[]).await?;
    Ok(row.get(0))
}
