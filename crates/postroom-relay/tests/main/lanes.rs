//! Lanes are isolated: what happens in one is of no concern to another.

use crate::outbox::{Outbox, SOON, lane, message, on_stores, patient_lane};
use crate::script::{Act, Script};
use async_trait::async_trait;
use postroom_core::{Enqueued, Message, Outcome, Report, Sink, SystemClock};
use postroom_relay::{Lane, LaneHealth, LaneState, Relay, Settings};
use postroom_sinks::MemorySink;
use postroom_store::memory::MemoryStore;
use postroom_testkit::eventually;
use std::sync::Arc;
use std::time::Duration;

on_stores! { [mariadb memory postgres]:
    fault_29_a_destination_that_is_gone_costs_one_message_and_pauses_its_lane
    a_refusal_pauses_its_lane_alone_and_uses_no_attempt
    a_lane_that_hangs_never_delays_another
    a_lane_that_fails_never_delays_another
    the_receivers_own_delay_is_obeyed_and_capped
}

on_stores! { [memory]: a_paused_lane_tries_again_by_itself }

on_stores! { [memory postgres]:
    a_backlog_that_does_not_fit_its_batches_is_drained_without_a_pause
    claims_end_with_their_last_outcome
}

on_stores! { [postgres]:
    a_slow_delivery_keeps_its_claim
    an_idle_lane_has_nothing_in_flight
}

/// Fresh messages are taken by up to 64, of which a batch of 100 holds one and a half: what is left of it
/// does not mean that nothing waits.
async fn a_backlog_that_does_not_fit_its_batches_is_drained_without_a_pause(outbox: Outbox) {
    let batch: Vec<_> = (0..640).map(|_| message("memory:all")).collect();
    let accepted = outbox.store.accept(&batch, None).await.unwrap();
    // Nobody looks again by himself before the test is over.
    let settings = Settings { poll_interval: 10 * SOON, batch_size: 100, ..Settings::default() };
    let sink = MemorySink::new();
    let relay = outbox.start(settings, vec![lane("memory:all", sink.clone())]);
    eventually("all of them", SOON, async || {
        (sink.delivered().len() == accepted.len()).then_some(())
    })
    .await;
    relay.stop().await.unwrap();
}

/// A receiver whose answers take from 0 to 7 ms.
struct Uneven;

#[async_trait]
impl Sink for Uneven {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            tokio::time::sleep(Duration::from_millis((message.seq % 8).unsigned_abs())).await;
            report.outcome(index, Outcome::Delivered);
        }
    }
}

/// Outcomes of one claim come one by one, and several settlements record them side by side. None of these
/// knows that it is the last.
async fn claims_end_with_their_last_outcome(outbox: Outbox) {
    let settings = Settings { claim_time: 10 * SOON, ..Settings::default() };
    let uneven = Lane { concurrency: 16, ..lane("memory:all", Uneven) };
    let relay = outbox.start(settings, vec![uneven]);
    for _ in 0..30 {
        let batch: Vec<_> = (0..40).map(|_| message("memory:all")).collect();
        let accepted = outbox.store.accept(&batch, None).await.unwrap();
        let ids: Vec<_> = accepted.into_iter().map(Enqueued::into_id).collect();
        outbox.wait_for_all(&ids, "SENT").await;
    }
    eventually("all claims to be over", SOON / 2, async || {
        let relays = outbox.store.relays().await.unwrap();
        (relays.iter().map(|relay| relay.claims).sum::<u64>() == 0).then_some(())
    })
    .await;
    relay.stop().await.unwrap();
}

async fn a_refusal_pauses_its_lane_alone_and_uses_no_attempt(outbox: Outbox) {
    let refusing = Script::new(|_| Act::Report(Outcome::refuse("401: check the credentials")));
    let working = MemorySink::new();
    let refused = outbox.enqueue("memory:refusing", 3).await;
    let relay = outbox.start(
        Settings::default(),
        vec![lane("memory:refusing", refusing.clone()), lane("memory:working", working.clone())],
    );
    eventually("the pause", SOON, async || {
        (of(&relay, "memory:refusing").state == LaneState::Paused).then_some(())
    })
    .await;
    let attempts = refusing.attempts();
    let paused = of(&relay, "memory:refusing");
    assert_eq!(paused.error.as_deref(), Some("401: check the credentials"));
    outbox.wait_for_all(&refused, "PENDING").await;
    for record in outbox.records(&refused).await {
        assert_eq!((record.message.attempts, record.last_error), (0, None));
    }

    // The other lane goes on for many rounds, while this one is not tried.
    for _ in 0..20 {
        let id = outbox.put(message("memory:working")).await;
        outbox.wait_for(&id, "SENT").await;
    }
    if of(&relay, "memory:refusing").state == LaneState::Paused {
        assert_eq!(refusing.attempts(), attempts, "a paused lane is left alone");
    }
    assert!(relay.health().ready, "a destination's trouble is not the relay's");
    relay.stop().await.unwrap();
}

async fn fault_29_a_destination_that_is_gone_costs_one_message_and_pauses_its_lane(outbox: Outbox) {
    let gone = Script::new(|_| Act::Report(Outcome::gone("410: remove the integration")));
    let ids = outbox.enqueue("memory:gone", 5).await;
    let mut one_by_one = lane("memory:gone", gone.clone());
    (one_by_one.concurrency, one_by_one.batch_size) = (1, 1);
    let working = lane("memory:working", MemorySink::new());
    let relay = outbox.start(Settings::default(), vec![one_by_one, working]);
    let dead = outbox.wait_for(&ids[0], "DEAD").await;
    assert_eq!(dead.last_error.as_deref(), Some("410: remove the integration"));
    outbox.wait_for_all(&ids[1..], "PENDING").await;
    let id = outbox.put(message("memory:working")).await;
    outbox.wait_for(&id, "SENT").await;
    let paused = of(&relay, "memory:gone");
    assert_eq!(paused.state, LaneState::Paused);
    assert_eq!(paused.error.as_deref(), Some("410: remove the integration"));
    assert_eq!(gone.attempts(), 1);
    for record in outbox.records(&ids[1..]).await {
        assert_eq!((record.message.attempts, record.last_error), (0, None));
    }
    relay.stop().await.unwrap();
}

fn of(relay: &Relay, integration: &str) -> LaneHealth {
    let lanes = relay.health().lanes;
    lanes.into_iter().find(|lane| lane.integration == integration).expect("a lane of this relay")
}

async fn a_paused_lane_tries_again_by_itself(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::refuse("no such topic"));
    let id = outbox.put(message("memory:a")).await;
    let relay = outbox.start(Settings::default(), vec![lane("memory:a", sink.clone())]);
    let sent = outbox.wait_for(&id, "SENT").await;
    assert_eq!((sent.message.attempts, sink.attempts()), (0, 2));
    let healthy = of(&relay, "memory:a");
    assert_eq!((healthy.state, healthy.error), (LaneState::Running, None));
    relay.stop().await.unwrap();
}

async fn a_lane_that_hangs_never_delays_another(outbox: Outbox) {
    let (hanging, working) = (MemorySink::new(), MemorySink::new());
    hanging.hold();
    // More than the lane may hold, and all of it due before the other's.
    let stuck = outbox.enqueue("memory:hanging", 60).await;
    let settings = Settings { batch_size: 10, ..Settings::default() };
    let mut narrow = lane("memory:hanging", hanging.clone());
    (narrow.concurrency, narrow.batch_size) = (1, 1);
    let relay = outbox.start(settings, vec![narrow, lane("memory:working", working.clone())]);
    hanging.wait_held(1).await;
    for _ in 0..5 {
        let ids = outbox.enqueue("memory:working", 30).await;
        outbox.wait_for_all(&ids, "SENT").await;
    }
    assert_eq!(hanging.delivered().len(), 0);
    hanging.release();
    outbox.wait_for_all(&stuck, "SENT").await;
    relay.stop().await.unwrap();
}

async fn a_lane_that_fails_never_delays_another(outbox: Outbox) {
    let failing = Script::new(|_| Act::fail());
    let mut endless = lane("memory:failing", failing.clone());
    endless.retry.max_attempts = postroom_core::AttemptLimit::Forever;
    let failed = outbox.enqueue("memory:failing", 30).await;
    let relay =
        outbox.start(Settings::default(), vec![endless, lane("memory:working", MemorySink::new())]);
    for _ in 0..5 {
        let ids = outbox.enqueue("memory:working", 30).await;
        outbox.wait_for_all(&ids, "SENT").await;
    }
    eventually("every message to have failed", SOON, async || {
        (outbox.records(&failed).await.iter().all(|record| record.message.attempts > 0))
            .then_some(())
    })
    .await;
    relay.stop().await.unwrap();
}

async fn the_receivers_own_delay_is_obeyed_and_capped(outbox: Outbox) {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    // The policy of this lane says one minute and up to ten seconds more.
    let cases = [
        (None, minutes(1), minutes(1) + Duration::from_secs(10)),
        (Some(minutes(30)), minutes(30), minutes(30)),
        (Some(Duration::MAX), minutes(60), minutes(60)),
        (Some(Duration::from_secs(1)), minutes(1), minutes(1) + Duration::from_secs(10)),
    ];
    for (asked, at_least, at_most) in cases {
        let sink = MemorySink::new();
        sink.fail_next(1, Outcome::Retry { error: "429".to_owned(), after: asked });
        let id = outbox.put(message("memory:a")).await;
        let before = outbox.store.now().await.unwrap();
        let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink)]);
        assert_eq!(relay.tick(1).await.unwrap().failed, 1);
        let after = outbox.store.now().await.unwrap();
        let due_at = outbox.record(&id).await.message.due_at;
        assert!(due_at >= before + at_least, "{asked:?}: due at {due_at}, failed after {before}");
        assert!(due_at <= after + at_most, "{asked:?}: due at {due_at}, failed before {after}");
    }
}

async fn a_slow_delivery_keeps_its_claim(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.hold();
    let claim_time = Duration::from_secs(2);
    let settings = || Settings { claim_time, ..Settings::default() };
    let id = outbox.put(message("memory:a")).await;
    let slow = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    sink.wait_held(1).await;
    let other = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    let claim = outbox.record(&id).await;
    eventually("two claim times to pass", SOON, async || {
        let now = outbox.store.now().await.unwrap();
        (now > claim.locked_at.unwrap() + 2 * claim_time).then_some(())
    })
    .await;
    assert_eq!(outbox.record(&id).await, claim, "held by the same relay since the same time");
    sink.release();
    outbox.wait_for(&id, "SENT").await;
    slow.stop().await.unwrap();
    other.stop().await.unwrap();
    assert_eq!(sink.attempts(), 1);
}

async fn an_idle_lane_has_nothing_in_flight(outbox: Outbox) {
    let settings = Settings { poll_interval: Duration::from_millis(1), ..Settings::default() };
    let relay = outbox.start(settings, vec![lane("memory:a", MemorySink::new())]);
    eventually("readiness", SOON, async || relay.health().ready.then_some(())).await;
    for _ in 0..200 {
        assert_eq!(of(&relay, "memory:a").in_flight, 0, "asking is not holding");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    relay.stop().await.unwrap();
}

/// Every lane may go through another transport: the relay rescues and prunes for them.
#[tokio::test]
async fn a_relay_without_lanes_goes_on_until_it_is_stopped() {
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let relay = Relay::new(store, Settings::default(), Vec::new());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = relay.run(async {
        let _ = stopped.await;
    });
    let ready = async {
        let is_ready = async || relay.health().ready.then_some(());
        eventually("readiness", Duration::from_secs(10), is_ready).await;
        drop(stop);
    };
    let (ended, ()) = tokio::join!(run, ready);
    ended.expect("it was stopped");
}
