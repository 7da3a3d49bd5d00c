//! How soon a live subscriber has what was appended.

use super::append::failed;
use super::reported::report;
use super::{Server, Size, event};
use kurrentdb::{
    BatchAppendOptions, StreamPosition, StreamState, SubscribeToAllOptions, SubscriptionEvent,
};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Between two appends, so that each finds everybody idle.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = Server::start()?;
    let reader = server.client()?;
    let (told, mut arrived) = mpsc::unbounded_channel();
    // In a task of its own: the client's `next` must not be dropped half-way.
    tokio::spawn(async move {
        let options = SubscribeToAllOptions::default().position(StreamPosition::End);
        let mut subscription = reader.subscribe_to_all(&options).await;
        while let Ok(event) = subscription.next_subscription_event().await {
            let is_event = matches!(event, SubscriptionEvent::EventAppeared(_));
            if is_event || matches!(event, SubscriptionEvent::CaughtUp(_)) {
                let _ = told.send(Instant::now());
            }
        }
    });
    let client = server.client()?;
    let appender = client.batch_append(&BatchAppendOptions::default()).await.map_err(failed)?;
    // It is live.
    arrived.recv().await;
    let mut times = Vec::new();
    for _ in 0..size.pick(500, 10) {
        let began = Instant::now();
        let events = vec![event()];
        appender.append_to_stream("bench", StreamState::Any, events).await.map_err(failed)?;
        if let Some(at) = arrived.recv().await {
            times.push((at - began).as_secs_f64() * 1e3);
        }
        tokio::time::sleep(PAUSE).await;
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let notes = json!({ "p99": at(0.99), "longest": at(1.0), "appends": times.len() });
    report("live_latency", at(0.5), "ms", &notes);
    Ok(())
}
