//! What an attempt can come to, and how many there are.

use crate::outbox::{Outbox, lane, message, on_stores, patient_lane};
use crate::script::{Act, Script};
use async_trait::async_trait;
use postroom_core::{AttemptLimit, AttemptOutcome, Message, MessageId, Outcome, Report, Sink};
use postroom_relay::{Pass, Settings};
use postroom_sinks::MemorySink;
use std::time::Duration;

on_stores! { [mariadb memory postgres sqlite]:
    a_sink_that_always_fails_ends_dead_after_the_messages_maximum
    the_integrations_maximum_wins_over_the_messages
    for_ever_means_for_ever
    a_batch_that_fails_in_part_completes_in_part
    fault_24_a_panic_is_a_counted_attempt_and_the_relay_lives
}

on_stores! { [memory]:
    a_rejected_message_is_dead_after_one_attempt
    what_was_reported_before_a_panic_stands
    a_sink_that_reports_nothing_has_failed
    a_sink_that_never_answers_is_timed_out_and_its_slot_freed
    only_the_first_word_on_a_message_counts
    an_answer_that_is_lost_is_a_repeat_with_the_same_event_id
}

async fn a_sink_that_always_fails_ends_dead_after_the_messages_maximum(outbox: Outbox) {
    let sink = Script::new(|_| Act::fail());
    let id = outbox.put(message("memory:a").max_attempts(3)).await;
    let relay = outbox.start(Settings::default(), vec![lane("memory:a", sink.clone())]);
    let dead = outbox.wait_for(&id, "DEAD").await;
    assert_eq!((sink.attempts(), dead.message.attempts), (3, 3));
    assert_eq!(dead.last_error.as_deref(), Some("503 Service Unavailable"));
    let history = outbox.store.attempts(&id).await.unwrap();
    let told: Vec<_> = history.iter().map(|one| (one.outcome, one.error.as_str())).collect();
    assert_eq!(told, [(AttemptOutcome::Retry, "503 Service Unavailable"); 3]);
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 3, "dead is dead");
}

async fn the_integrations_maximum_wins_over_the_messages(outbox: Outbox) {
    for (own, integration) in [(5, 2), (1, 4)] {
        let name = format!("memory:{integration}");
        let sink = Script::new(|_| Act::fail());
        let mut lane = lane(&name, sink.clone());
        lane.retry.max_attempts = AttemptLimit::AtMost(integration);
        let id = outbox.put(message(&name).max_attempts(own)).await;
        let relay = outbox.start(Settings::default(), vec![lane]);
        let dead = outbox.wait_for(&id, "DEAD").await;
        assert_eq!((sink.attempts(), dead.message.attempts), (integration as usize, integration));
        relay.stop().await.unwrap();
    }
}

async fn for_ever_means_for_ever(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.fail_next(12, Outcome::retry("503"));
    let mut lane = lane("memory:a", sink.clone());
    lane.retry.max_attempts = AttemptLimit::Forever;
    let id = outbox.put(message("memory:a").max_attempts(1)).await;
    let relay = outbox.start(Settings::default(), vec![lane]);
    let sent = outbox.wait_for(&id, "SENT").await;
    assert_eq!((sink.attempts(), sent.message.attempts), (13, 12));
    relay.stop().await.unwrap();
}

async fn a_batch_that_fails_in_part_completes_in_part(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::Delivered);
    sink.fail_next(1, Outcome::retry("busy"));
    sink.fail_next(1, Outcome::reject("malformed"));
    sink.fail_next(1, Outcome::Delivered);
    sink.fail_next(1, Outcome::retry("busy"));
    let ids = outbox.enqueue("memory:a", 5).await;
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", sink.clone())]);
    let pass = relay.tick(5).await.unwrap();
    assert_eq!(pass, Pass { taken: 5, sent: 2, failed: 2, dead: 1, released: 0 });
    assert_eq!(outbox.statuses(&ids).await, ["SENT", "FAILED", "DEAD", "SENT", "FAILED"]);

    // The rest is tried again, and only the rest.
    let pass = eventually_taken(&relay, 2).await;
    assert_eq!((pass.sent, sink.attempts()), (2, 7));
    assert_eq!(outbox.statuses(&ids).await, ["SENT", "SENT", "DEAD", "SENT", "SENT"]);
    let attempts: Vec<u32> =
        outbox.records(&ids).await.iter().map(|record| record.message.attempts).collect();
    assert_eq!(attempts, [0, 1, 1, 0, 1]);
}

/// Passes until so many messages have fallen due and were taken.
async fn eventually_taken(relay: &postroom_relay::Relay, count: u64) -> Pass {
    let mut total = Pass::default();
    postroom_testkit::eventually("messages to fall due", crate::outbox::SOON, async || {
        let pass = relay.tick(100).await.unwrap();
        total.taken += pass.taken;
        total.sent += pass.sent;
        (total.taken >= count).then_some(())
    })
    .await;
    total
}

async fn fault_24_a_panic_is_a_counted_attempt_and_the_relay_lives(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.panic_on("deadly");
    let mut alone = lane("memory:a", sink.clone());
    alone.batch_size = 1;
    let deadly = outbox.put(message("memory:a").event_id("deadly").max_attempts(3)).await;
    let others = outbox.enqueue("memory:a", 5).await;
    let relay = outbox.start(Settings::default(), vec![alone]);
    let dead = outbox.wait_for(&deadly, "DEAD").await;
    assert_eq!(dead.message.attempts, 3);
    let error = dead.last_error.unwrap();
    assert!(error.starts_with("the sink panicked: "), "{error}");
    outbox.wait_for_all(&others, "SENT").await;

    let later = outbox.put(message("memory:a")).await;
    outbox.wait_for(&later, "SENT").await;
    assert!(relay.health().ready);
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 3 + 6);
}

async fn a_rejected_message_is_dead_after_one_attempt(outbox: Outbox) {
    let sink = Script::new(|_| Act::Report(Outcome::reject("400 Bad Request")));
    let id = outbox.put(message("memory:a")).await;
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", sink.clone())]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 1, dead: 1, ..Pass::default() });
    let dead = outbox.record(&id).await;
    assert_eq!((dead.status.as_str(), dead.message.attempts), ("DEAD", 1));
    assert_eq!(dead.last_error.as_deref(), Some("400 Bad Request"));
}

async fn what_was_reported_before_a_panic_stands(outbox: Outbox) {
    let (first, second, third) = three(&outbox, "memory:a").await;
    let (reported, panics) = (first.clone(), second.clone());
    let sink = Script::new(move |message: &Message| match &message.id {
        id if *id == reported => Act::Report(Outcome::Delivered),
        id if *id == panics => Act::Panic,
        _ => panic!("a panic ends the call"),
    });
    let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink)]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 3, sent: 1, failed: 2, ..Pass::default() });
    assert_eq!(outbox.statuses(&[first, second, third]).await, ["SENT", "FAILED", "FAILED"]);
}

async fn three(outbox: &Outbox, integration: &str) -> (MessageId, MessageId, MessageId) {
    let ids = outbox.enqueue(integration, 3).await;
    (ids[0].clone(), ids[1].clone(), ids[2].clone())
}

async fn a_sink_that_reports_nothing_has_failed(outbox: Outbox) {
    let id = outbox.put(message("memory:a")).await;
    let sink = Script::new(|_| Act::Silence);
    let relay = outbox.relay(Settings::default(), vec![patient_lane("memory:a", sink)]);
    assert_eq!(relay.tick(10).await.unwrap().failed, 1);
    let failed = outbox.record(&id).await;
    assert_eq!((failed.status.as_str(), failed.message.attempts), ("FAILED", 1));
    assert_eq!(failed.last_error.as_deref(), Some("the sink reported no outcome"));
}

async fn a_sink_that_never_answers_is_timed_out_and_its_slot_freed(outbox: Outbox) {
    let (first, second, third) = three(&outbox, "memory:a").await;
    let stalls = second.clone();
    let sink = Script::new(move |message: &Message| {
        if message.id == stalls { Act::Stall } else { Act::Report(Outcome::Delivered) }
    });
    let mut lane = patient_lane("memory:a", sink);
    (lane.concurrency, lane.timeout) = (1, Duration::from_millis(50));
    let relay = outbox.start(Settings::default(), vec![lane]);
    outbox.wait_for(&first, "SENT").await;
    let failed = outbox.wait_for(&second, "FAILED").await;
    assert_eq!(failed.message.attempts, 1);
    assert_eq!(failed.last_error.as_deref(), Some("no answer within 50ms"));
    // Behind it in the same call, so that nothing is known of it either.
    outbox.wait_for(&third, "FAILED").await;
    let later = outbox.put(message("memory:a")).await;
    outbox.wait_for(&later, "SENT").await;
    relay.stop().await.unwrap();
}

async fn only_the_first_word_on_a_message_counts(outbox: Outbox) {
    struct Babbler;
    #[async_trait]
    impl Sink for Babbler {
        async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
            for index in 0..batch.len() {
                report.delivered(index);
                report.outcome(index, Outcome::reject("on second thoughts"));
            }
            report.delivered(batch.len());
        }
    }
    let ids = outbox.enqueue("memory:a", 2).await;
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", Babbler)]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 2, sent: 2, ..Pass::default() });
    assert_eq!(outbox.statuses(&ids).await, ["SENT", "SENT"]);
}

async fn an_answer_that_is_lost_is_a_repeat_with_the_same_event_id(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.lose_next_answers(1);
    let id = outbox.put(message("memory:a").event_id("e-1")).await;
    let relay = outbox.start(Settings::default(), vec![lane("memory:a", sink.clone())]);
    outbox.wait_for(&id, "SENT").await;
    let events: Vec<String> =
        sink.delivered().into_iter().map(|message| message.event_id).collect();
    assert_eq!(events, ["e-1", "e-1"]);
    relay.stop().await.unwrap();
}
