//! Servers that are down, silent, or lost in the middle: a retry, and never a loss.

use super::content::arrived;
use super::{SinkHarness, deliver, deliver_all, message};
use crate::{Passage, Proxy, eventually};
use postroom_core::{Outcome, Sink};
use std::collections::BTreeSet;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Longer than a delivery takes when all is well.
const ATTEMPT: Duration = Duration::from_secs(10);
/// As many bytes as there are.
const ALL: usize = usize::MAX;

fn proxy(harness: &impl SinkHarness, line: &str) -> Option<Proxy> {
    harness.proxy().map_err(|reason| harness.skip(line, reason)).ok()
}

/// Delivers one message until it is acknowledged, as retries do.
async fn deliver_with_retry(sink: &dyn Sink, event_id: &str) {
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
    deliver_with_retry(&*sink, "e-1").await;
    proxy.set(Passage::Down);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    deliver_with_retry(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// A network that swallows packets.
pub async fn a_server_that_says_nothing_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_server_that_says_nothing_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "e-1").await;
    proxy.set(Passage::Silent);
    let outcomes = deliver(&*sink, &[message("e-2")], ATTEMPT).await.outcomes();
    assert!(matches!(&outcomes[0], Outcome::Retry { .. }), "{:?}", outcomes[0]);
    // What hangs is given up on, and does not block what follows.
    proxy.set(Passage::Down);
    proxy.set(Passage::Open);
    deliver_with_retry(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// The server gets part of the request at most.
pub async fn a_request_cut_off_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_request_cut_off_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "e-1").await;
    proxy.set(Passage::CutRequests);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    deliver_with_retry(&*sink, "e-2").await;
    arrived(harness, 2).await;
}

/// The work is done, and the sink does not learn of it.
pub async fn an_answer_that_is_lost_leads_to_a_retry(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "an_answer_that_is_lost_leads_to_a_retry") else { return };
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "e-1").await;
    proxy.set(Passage::LoseAnswers);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    deliver_with_retry(&*sink, "e-2").await;
    let received = arrived(harness, 2).await;
    let others = received.iter().filter(|one| one.key != "e-1" && one.key != "e-2").count();
    assert_eq!(others, 0, "a repetition has the same key: {received:?}");
}

/// Waits until messages with these keys can be read at the destination, and returns all keys.
async fn arrived_with(harness: &impl SinkHarness, keys: &[&str]) -> BTreeSet<String> {
    eventually("what was acknowledged to be there", SOON, async || {
        let received = harness.received().await;
        let there: BTreeSet<_> = received.into_iter().map(|one| one.key).collect();
        keys.iter().all(|key| there.contains(*key)).then_some(there)
    })
    .await
}

/// A stop in the middle of a batch, after the first requests or the first answers: what was
/// reported is there, and what is not reported is delivered again. How long these are differs; for
/// each protocol, some of the lengths are those of a few messages.
pub async fn a_delivery_that_is_dropped_has_reported_only_what_is_true(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_delivery_that_is_dropped_has_reported_only_what_is_true")
    else {
        return;
    };
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "first").await;
    let mut begun = 0;
    let lengths = [(1, ALL), (4000, ALL), (ALL, 1), (ALL, 50), (ALL, 400), (ALL, 3000)];
    for (round, (asked, answered)) in lengths.into_iter().enumerate() {
        let batch: Vec<_> = (0..12).map(|n| message(&format!("e-{round}-{n}"))).collect();
        proxy.set(Passage::HangAfter { asked, answered });
        let outcomes = deliver(&*sink, &batch, Duration::from_millis(300)).await.outcomes();
        let mut reported = Vec::new();
        for (message, outcome) in batch.iter().zip(&outcomes) {
            match outcome {
                Outcome::Delivered => reported.push(message.event_id.as_str()),
                Outcome::Retry { .. } => {}
                other => panic!("a server's trouble is a retry: {other:?}"),
            }
        }
        // While nothing passes: it is there already, and not because of what follows.
        proxy.set(Passage::Silent);
        let there = arrived_with(harness, &reported).await;
        begun += batch.iter().filter(|message| there.contains(&message.event_id)).count();
        proxy.set(Passage::Open);
        let all: Vec<_> = batch.iter().map(|message| message.event_id.as_str()).collect();
        for event_id in all.iter().filter(|event_id| !reported.contains(*event_id)) {
            deliver_with_retry(&*sink, event_id).await;
        }
        arrived_with(harness, &all).await;
    }
    assert!(begun > 0, "the server got something of what was dropped");
}

/// For `postroom check`, which has not delivered anything yet.
pub async fn a_probe_says_when_the_destination_is_gone(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_probe_says_when_the_destination_is_gone") else { return };
    proxy.set(Passage::Down);
    let sink = harness.sink(proxy.address()).await;
    let probed = tokio::time::timeout(ATTEMPT, sink.probe()).await.expect("a probe has an end");
    assert!(!probed.expect_err("nobody is there").to_string().is_empty());
    proxy.set(Passage::Open);
    eventually("the destination to be found", SOON, async || sink.probe().await.ok()).await;
    assert!(harness.received().await.is_empty(), "a probe delivers nothing");
}

/// Fifty messages, and far fewer connections. A client over HTTP/1 opens one more whenever the
/// last answer's is not yet back in its pool, which is often so on a busy machine.
pub async fn connections_are_used_again(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "connections_are_used_again") else { return };
    if let Err(reason) = harness.keeps_connections() {
        return harness.skip("connections_are_used_again", reason);
    }
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "first").await;
    for n in 0..50 {
        let outcomes = deliver_all(&*sink, &[message(&format!("e-{n}"))]).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
    }
    assert!(proxy.connections() <= 25, "{} connections", proxy.connections());
}

/// Once the destination is there again, without anyone asking.
pub async fn a_lost_connection_is_made_again_in_the_background(harness: &impl SinkHarness) {
    let Some(proxy) = proxy(harness, "a_lost_connection_is_made_again_in_the_background") else {
        return;
    };
    if let Err(reason) = harness.recovers_by_itself() {
        return harness.skip("a_lost_connection_is_made_again_in_the_background", reason);
    }
    let sink = harness.sink(proxy.address()).await;
    deliver_with_retry(&*sink, "e-1").await;
    let before = proxy.let_through();
    proxy.set(Passage::Down);
    expect_retry(&*sink, "e-2").await;
    proxy.set(Passage::Open);
    eventually("a connection to be made", SOON, async || {
        (proxy.let_through() > before).then_some(())
    })
    .await;
    deliver_with_retry(&*sink, "e-2").await;
}
