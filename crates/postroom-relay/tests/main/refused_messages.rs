//! A destination that refuses: one message, or everything.

use crate::outbox::{Outbox, SOON, lane, message, on_stores};
use crate::script::{Act, Script};
use async_trait::async_trait;
use postroom_core::{AttemptLimit, Message, MessageId, Outcome, Report, Sink};
use postroom_relay::{Lane, LaneState, Pass, Settings};
use postroom_testkit::eventually;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_stores! { [mariadb memory postgres sqlite]:
    fault_29_a_refusal_among_acceptances_is_a_failed_attempt
}

on_stores! { [memory postgres]:
    fault_29_under_steady_traffic_a_refused_message_is_sent_once_per_attempt
}

on_stores! { [memory]:
    fault_29_messages_behind_refused_ones_are_delivered
    fault_29_a_destination_that_refuses_everything_is_asked_one_message_at_a_time
}

const FORBIDDEN: &str = "403: this payload is forbidden";

/// Refuses what its producer called bad, and counts how often it did.
fn refuses_bad_ones(
    refused: &Arc<AtomicUsize>,
) -> Script<impl Fn(&Message) -> Act + Send + Sync + 'static> {
    let refused = Arc::clone(refused);
    Script::new(move |message: &Message| {
        let is_bad = message.event_type == "bad";
        refused.fetch_add(usize::from(is_bad), Ordering::AcqRel);
        Act::Report(if is_bad { Outcome::refuse(FORBIDDEN) } else { Outcome::Delivered })
    })
}

/// A lane whose messages go one by one, as to an HTTP receiver.
fn one_by_one(sink: impl Sink, concurrency: usize) -> Lane {
    Lane { concurrency, batch_size: 1, ..lane("memory:a", sink) }
}

async fn bad_one(outbox: &Outbox, max_attempts: i32) -> MessageId {
    let mut bad = message("memory:a").max_attempts(max_attempts);
    bad.event_type = "bad".to_owned();
    outbox.put(bad).await
}

async fn fault_29_a_refusal_among_acceptances_is_a_failed_attempt(outbox: Outbox) {
    let sink = refuses_bad_ones(&Arc::default());
    let mut good = outbox.enqueue("memory:a", 5).await;
    let bad = bad_one(&outbox, 10).await;
    good.extend(outbox.enqueue("memory:a", 4).await);
    let mut lane = one_by_one(sink.clone(), 2);
    lane.retry.base = Duration::from_secs(3_600);
    lane.retry.cap = Duration::from_secs(3_600);
    let relay = outbox.relay(Settings::default(), vec![lane]);
    let pass = relay.tick(100).await.unwrap();
    assert_eq!(pass, Pass { taken: 10, sent: 9, failed: 1, ..Pass::default() });
    assert_eq!(sink.attempts(), 10, "each was sent once");
    let failed = outbox.record(&bad).await;
    assert_eq!((failed.status.as_str(), failed.message.attempts), ("FAILED", 1));
    assert_eq!(failed.last_error.as_deref(), Some(FORBIDDEN));
    assert!(outbox.statuses(&good).await.iter().all(|status| status == "SENT"));
    assert_eq!(relay.health().lanes[0].state, LaneState::Running);
}

async fn fault_29_under_steady_traffic_a_refused_message_is_sent_once_per_attempt(outbox: Outbox) {
    let sent = Arc::new(AtomicUsize::new(0));
    let relay = outbox.start(Settings::default(), vec![one_by_one(refuses_bad_ones(&sent), 4)]);
    let mut good = outbox.enqueue("memory:a", 20).await;
    let bad = bad_one(&outbox, 3).await;
    let dead = eventually("the refused message to be DEAD", SOON, async || {
        good.push(outbox.put(message("memory:a")).await);
        Some(outbox.record(&bad).await).filter(|record| record.status == "DEAD")
    })
    .await;
    assert_eq!((dead.message.attempts, sent.load(Ordering::Acquire)), (3, 3));
    assert_eq!(dead.last_error.as_deref(), Some(FORBIDDEN));
    outbox.wait_for_all(&good, "SENT").await;
    relay.stop().await.unwrap();
}

async fn fault_29_messages_behind_refused_ones_are_delivered(outbox: Outbox) {
    let mut bad = Vec::new();
    for _ in 0..20 {
        bad.push(bad_one(&outbox, 1).await);
    }
    let good = outbox.enqueue("memory:a", 5).await;
    let relay =
        outbox.start(Settings::default(), vec![one_by_one(refuses_bad_ones(&Arc::default()), 16)]);
    outbox.wait_for_all(&good, "SENT").await;
    // Others were accepted: their refusal concerns themselves.
    outbox.wait_for_all(&bad, "DEAD").await;
    relay.stop().await.unwrap();
}

/// Refuses everything, and notes how many calls there were, and how many at once.
#[derive(Clone, Default)]
struct Forbidden {
    calls: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl Sink for Forbidden {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let running = self.running.fetch_add(1, Ordering::AcqRel) + 1;
        self.most.fetch_max(running, Ordering::AcqRel);
        self.calls.fetch_add(1, Ordering::AcqRel);
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.running.fetch_sub(1, Ordering::AcqRel);
        for index in 0..batch.len() {
            report.outcome(index, Outcome::refuse("401: check the credentials"));
        }
    }
}

async fn fault_29_a_destination_that_refuses_everything_is_asked_one_message_at_a_time(
    outbox: Outbox,
) {
    let sink = Forbidden::default();
    let ids = outbox.enqueue("memory:a", 30).await;
    let mut lane = one_by_one(sink.clone(), 8);
    lane.retry.max_attempts = AttemptLimit::AtMost(1);
    let relay = outbox.start(Settings::default(), vec![lane]);
    eventually("the pause", SOON, async || {
        (relay.health().lanes[0].state == LaneState::Paused).then_some(())
    })
    .await;
    outbox.wait_for_all(&ids, "PENDING").await;
    let first = sink.calls.load(Ordering::Acquire);
    assert!(first <= 8, "what had not begun was not offered");
    sink.most.store(0, Ordering::Release);
    eventually("two more to be tried", SOON, async || {
        (sink.calls.load(Ordering::Acquire) >= first + 2).then_some(())
    })
    .await;
    assert_eq!(sink.most.load(Ordering::Acquire), 1, "one at a time");
    relay.stop().await.unwrap();
    for record in outbox.records(&ids).await {
        assert_eq!((record.status.as_str(), record.message.attempts), ("PENDING", 0));
    }
}
