//! Servers that are down, silent, or lost in the middle: a retry, and never a loss.

use super::content::arrived;
use super::{SinkHarness, deliver, deliver_all, message};
use crate::{Passage, Proxy, eventually};
use postroom_core::{Outcome, Sink};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Longer than a delivery takes when all is well.
const ATTEMPT: Duration = Duration::from_secs(10);

fn proxy(harness: &impl SinkHarness, line: &str) -> Option<Proxy> {
    harness.proxy().map_err(|reason| harness.skip(line, reason)).ok()
}

/// Delivers one message until it is acknowledged, as retries do.
async fn insist(sink: &dyn Sink, event_id: &str) {
    eventually("the message to be acknowledged", SOON, async || {
        let outcomes = deliver(sink, &[message(event_id)], ATTEMPT).await.outcomes();
        match &outcomes[0] {
            Outcome::Delivered => Some(()),
            Outcome::Retry { .. } => None,
            other => panic!("a server's trouble is a retry: {other:?}"),
        }
    })
    .await;
}

/// One failed attempt.
async fn expect_retry(sink: &dyn Sink, event_id: &str) {
    let outcomes = deliver(sink, &[message(event_id)], ATTEMPT).await.outcomes();
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{:?}", outcomes[0]);
}

/// Down at the first delivery, and again after one.
pub async fn a_server_that_is_down_leads_to_a_retry_and_is_found_again(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_server_that_is_down_leads_to_a_retry_and_is_found_again")
    else {
        return;
    };
    proxy.set(Passage::Down);
    let sink = harness.sink(proxy.address()).await;
    expect_retry(&*sink, "e-1").await;
    proxy.set(Passage::Open);
    insist(&*sink, "e-1").await;
    proxy.set(Passage::Down);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    insist(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// A network that swallows packets.
pub async fn a_server_that_says_nothing_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_server_that_says_nothing_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "e-1").await;
    proxy.set(Passage::Silent);
    let outcomes = deliver(&*sink, &[message("e-2")], ATTEMPT).await.outcomes();
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{:?}", outcomes[0]);
    // What hangs is given up on, and does not block what follows.
    proxy.set(Passage::Down);
    proxy.set(Passage::Open);
    insist(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// The server gets part of the request at most.
pub async fn a_request_cut_off_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_request_cut_off_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "e-1").await;
    proxy.set(Passage::CutRequests);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    insist(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// The work is done, and the sink does not learn of it.
pub async fn an_answer_that_is_lost_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "an_answer_that_is_lost_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "e-1").await;
    proxy.set(Passage::LoseAnswers);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    insist(&*sink, "e-2").await;
    let received = arrived(harness, 2).await;
    let others = received.iter().filter(|one| one.key != "e-1" && one.key != "e-2").count();
    assert_eq!(others, 0, "a repetition has the same key: {received:?}");
}

/// A stop in the middle of a batch: what was reported is there, and what is not reported is
/// delivered again.
pub async fn a_delivery_that_is_dropped_has_reported_only_what_is_true(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_delivery_that_is_dropped_has_reported_only_what_is_true")
    else {
        return;
    };
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "first").await;
    let batch: Vec<_> = (0..20).map(|n| message(&format!("e-{n}"))).collect();
    proxy.set(Passage::Silent);
    let outcomes = deliver(&*sink, &batch, Duration::from_millis(200)).await.outcomes();
    proxy.set(Passage::Open);
    let reported: Vec<_> = batch
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| **outcome == Outcome::Delivered)
        .map(|(message, _)| message.event_id.clone())
        .collect();
    let received = arrived(harness, 1 + reported.len()).await;
    for event_id in reported {
        assert!(received.iter().any(|one| one.key == event_id), "{event_id} was reported");
    }
    for message in &batch {
        insist(&*sink, &message.event_id).await;
    }
    let received = harness.received().await;
    for message in &batch {
        assert!(received.iter().any(|one| one.key == message.event_id), "{}", message.event_id);
    }
}

/// Fifty messages, and far fewer connections. A client over HTTP/1 opens one more whenever the
/// last answer's is not yet back in its pool, which is often so on a busy machine.
pub async fn connections_are_used_again(harness: &impl SinkHarness) {
    if let Err(reason) = harness.keeps_connections() {
        return harness.skip("connections_are_used_again", reason);
    }
    let Some(proxy) = proxy(harness, "connections_are_used_again") else { return };
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "first").await;
    for n in 0..50 {
        let outcomes = deliver_all(&*sink, &[message(&format!("e-{n}"))]).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
    }
    assert!(proxy.connections() <= 25, "{} connections", proxy.connections());
}

/// Once the destination is there again, without anyone asking.
pub async fn a_lost_connection_is_made_again_in_the_background(harness: &impl SinkHarness) {
    if let Err(reason) = harness.recovers_by_itself() {
        return harness.skip("a_lost_connection_is_made_again_in_the_background", reason);
    }
    let proxy = Proxy::start(harness.server());
    let sink = harness.sink(proxy.address()).await;
    insist(&*sink, "e-1").await;
    proxy.set(Passage::Down);
    expect_retry(&*sink, "e-2").await;
    let before = proxy.connections();
    proxy.set(Passage::Open);
    eventually("a connection to be made", SOON, async || {
        (proxy.connections() > before).then_some(())
    })
    .await;
    insist(&*sink, "e-2").await;
}
