//! Everything is bounded, however much is waiting.

use crate::outbox::{Outbox, lane, message, on_stores};
use async_trait::async_trait;
use postroom_core::{Message, MessageId, Report, Sink, Store};
use postroom_relay::Settings;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

on_stores! { [mariadb memory postgres]:
    a_lane_never_holds_more_than_its_share_of_a_backlog
}

on_stores! { [memory]:
    a_lane_never_holds_more_than_its_share_of_bytes
}

/// Delivers, and watches how much is in hand meanwhile.
#[derive(Clone)]
struct Watcher {
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    delivered: Mutex<Vec<MessageId>>,
    calls: AtomicUsize,
    calls_max: AtomicUsize,
    batch_max: AtomicUsize,
    claimed_max: AtomicU64,
}

impl Watcher {
    fn new(outbox: &Outbox) -> Self {
        Self { store: Arc::clone(&outbox.store), seen: Arc::default() }
    }
}

#[async_trait]
impl Sink for Watcher {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let seen = &self.seen;
        let calls = seen.calls.fetch_add(1, Ordering::AcqRel) + 1;
        seen.calls_max.fetch_max(calls, Ordering::AcqRel);
        seen.batch_max.fetch_max(batch.len(), Ordering::AcqRel);
        let claimed = self.store.backlog().await.unwrap().total(|lane| lane.claimed);
        seen.claimed_max.fetch_max(claimed, Ordering::AcqRel);
        for (index, message) in batch.iter().enumerate() {
            seen.delivered.lock().unwrap().push(message.id.clone());
            report.delivered(index);
        }
        seen.calls.fetch_sub(1, Ordering::AcqRel);
    }

    fn batch_max(&self) -> usize {
        10
    }
}

async fn a_lane_never_holds_more_than_its_share_of_a_backlog(outbox: Outbox) {
    const BACKLOG: usize = 3_000;
    const TAKEN_AT_ONCE: usize = 40;
    let mut ids = outbox.enqueue("memory:a", BACKLOG).await;
    let watcher = Watcher::new(&outbox);
    let mut lane = lane("memory:a", watcher.clone());
    lane.concurrency = 3;
    let settings = Settings { batch_size: TAKEN_AT_ONCE, ..Settings::default() };
    let relay = outbox.start(settings, vec![lane]);
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();

    let seen = watcher.seen;
    let mut delivered = seen.delivered.lock().unwrap().clone();
    delivered.sort_unstable();
    ids.sort_unstable();
    assert_eq!(delivered, ids, "each once");
    assert!(seen.batch_max.load(Ordering::Acquire) <= 10, "the sink's own limit");
    assert!(seen.calls_max.load(Ordering::Acquire) <= 3, "the lane's concurrency");
    // Four times what the calls carry, or twice what is taken at once, whichever is more.
    let share = (4 * 3 * 10).max(2 * TAKEN_AT_ONCE) as u64;
    let claimed = seen.claimed_max.load(Ordering::Acquire);
    assert!((1..=share).contains(&claimed), "{claimed} in hand, at most {share} are allowed");
}

async fn a_lane_never_holds_more_than_its_share_of_bytes(outbox: Outbox) {
    const BYTES: usize = 200 * 1024;
    let body = "x".repeat(BYTES);
    let mut ids = Vec::new();
    for _ in 0..150 {
        ids.push(outbox.put(message("memory:a").json(&body)).await);
    }
    let watcher = Watcher::new(&outbox);
    let relay = outbox.start(Settings::default(), vec![lane("memory:a", watcher.clone())]);
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();
    // Less than 4 MiB held, and then at most two takes of 4 MiB.
    let claimed = watcher.seen.claimed_max.load(Ordering::Acquire);
    let most = (3 * (4 << 20) / BYTES) as u64 + 3;
    assert!((1..=most).contains(&claimed), "{claimed} in hand, at most {most} are allowed");
}
