//! Delivering as a relay does: what failed is tried again.

use postroom_core::{Message, Outcome, Sink};
use postroom_testkit::eventually;
use postroom_testkit::sink_contract::{deliver, message};
use std::future::Future;
use std::time::{Duration, Instant};

/// Enough for a broker that is started again beside everything else that runs.
const SOON: Duration = Duration::from_secs(180);

/// Delivers what is not delivered yet, again and again. `may_follow` says what trouble of a server
/// may lead to, besides a delivery.
pub(crate) async fn deliver_with_retry(
    sink: &dyn Sink,
    batch: &[Message],
    may_follow: fn(&Outcome) -> bool,
) {
    let mut left = batch.to_vec();
    eventually("all to be acknowledged", SOON, async || {
        let outcomes = deliver(sink, &left, Duration::from_secs(10)).await.outcomes();
        let open = left.iter().zip(&outcomes).filter(|(_, outcome)| {
            let delivered = **outcome == Outcome::Delivered;
            assert!(delivered || may_follow(outcome), "a server's trouble: {outcome:?}");
            !delivered
        });
        left = open.map(|(message, _)| message.clone()).collect();
        left.is_empty().then_some(())
    })
    .await;
}

/// How many events [`outlast`] delivers.
pub(crate) const EVENTS: usize = 1_000;

/// Delivers batch after batch, and goes on while `fault` strikes: all must be acknowledged, and
/// none may take long.
pub(crate) async fn outlast(
    sink: &dyn Sink,
    fault: impl Future<Output = ()>,
    may_follow: fn(&Outcome) -> bool,
) {
    const BATCH: usize = 25;
    let events: Vec<Message> = (0..EVENTS).map(|n| message(&format!("e-{n}"))).collect();
    let mut batches = events.chunks(BATCH);
    for batch in batches.by_ref().take(10) {
        deliver_with_retry(sink, batch, may_follow).await;
    }
    let begun = Instant::now();
    if let Some(batch) = batches.next() {
        // While the batch is on its way.
        tokio::join!(fault, deliver_with_retry(sink, batch, may_follow));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(40), "it goes on within seconds: {took:?}");
    for batch in batches {
        deliver_with_retry(sink, batch, may_follow).await;
    }
}
