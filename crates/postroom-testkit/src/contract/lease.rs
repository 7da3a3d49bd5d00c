//! Claims on what is in queues, kept by a lease.

use super::Harness;
use super::steps::{
    CLAIM_TIME, assert_nothing_due, enqueue_many, settle, settle_dispatch, take_for_queue,
    take_under, verdict,
};
use postroom_core::{Fate, Settled, Store, Token};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// Takes `n` messages under a lease, each by a claim of its own, as under thin traffic; the own time
/// of each claim is over at once.
async fn take_each(store: &dyn Store, lease: Token, n: usize) -> Vec<Token> {
    enqueue_many(store, "noop", n).await;
    let mut claims = Vec::with_capacity(n);
    for _ in 0..n {
        claims.push(take_under(store, lease, "noop", 1, Duration::ZERO).await.token);
    }
    claims
}

/// Waits until the database's clock has gone on, so that what lasted until now is over.
async fn let_time_pass(store: &dyn Store) {
    let began = store.now().await.expect("now");
    crate::eventually("the clock to go on", SOON, async || {
        let now = store.now().await.expect("now");
        (now - began >= chrono::TimeDelta::milliseconds(5)).then_some(())
    })
    .await;
}

async fn keep(store: &dyn Store, lease: Token, claims: &[Token], time: Duration) -> Vec<Token> {
    store.keep(lease, "dispatcher", claims, time).await.expect("keep")
}

/// One lease keeps claims whose own time is over, and they settle as others do.
pub async fn a_lease_keeps_every_claim_under_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    enqueue_many(&*store, "noop", 3).await;
    let first = take_under(&*store, lease, "noop", 2, CLAIM_TIME).await;
    assert!(keep(&*store, lease, &[first.token], CLAIM_TIME).await.is_empty());
    let second = take_under(&*store, lease, "noop", 1, CLAIM_TIME).await;
    assert_eq!(outbox.claims().await, 3, "a lease, and two claims");
    outbox.expire_claims().await;
    assert!(keep(&*store, lease, &[first.token, second.token], CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_nothing_due(&*store, "noop").await;
    for batch in [&first, &second] {
        let sent = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
        assert_eq!(settle(&*store, batch.token, sent, true).await, Settled::default());
    }
    assert_eq!(outbox.claims().await, 1, "the lease");
}

/// What a relay that died had in queues is free when its lease ends, in rounds that are bounded, and
/// is taken again like any other message.
pub async fn claims_under_a_lease_that_ends_are_rescued(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    let claims = take_each(&*store, lease, 5).await;
    keep(&*store, lease, &claims, CLAIM_TIME).await;
    let_time_pass(&*store).await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    outbox.expire_claims().await;
    let mut rounds = Vec::new();
    loop {
        match store.rescue(2).await.expect("rescue") {
            0 => break,
            freed => rounds.push(freed),
        }
    }
    assert_eq!(rounds.iter().sum::<u64>(), 5);
    assert!(rounds.iter().all(|freed| *freed <= 2), "{rounds:?}");
    assert_eq!(outbox.claims().await, 0);
    let again = take_for_queue(&*store, "noop", 10).await;
    assert_eq!(again.messages.len(), 5);
    for taken in &again.messages {
        assert_eq!((taken.rescues, taken.dispatch, taken.message.attempts), (0, 1, 0));
    }
}

/// A relay that dies before it could make its lease, or whose lease somebody deleted, loses nothing.
pub async fn claims_of_a_lease_that_nobody_keeps_are_rescued(outbox: &impl Harness) {
    let store = outbox.store().await;
    take_each(&*store, Token::random(), 2).await;
    let_time_pass(&*store).await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 2);
    assert_eq!(outbox.claims().await, 0);
}

/// A relay that slept through its lease's end is told which claims others have rescued meanwhile, and
/// holds the rest as before.
pub async fn what_is_left_of_an_expired_lease_is_kept_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    let mut claims = take_each(&*store, lease, 4).await;
    keep(&*store, lease, &claims, CLAIM_TIME).await;
    outbox.expire_claims().await;
    // One round, or two if the first met the lease.
    let mut freed = 0;
    while freed == 0 {
        freed = store.rescue(2).await.expect("rescue");
    }
    let adopted = take_for_queue(&*store, "noop", 10).await;
    assert_eq!(adopted.messages.len() as u64, freed);

    let lost = keep(&*store, lease, &claims, CLAIM_TIME).await;
    assert_eq!(lost.len() as u64, freed);
    claims.retain(|token| !lost.contains(token));
    assert!(keep(&*store, lease, &claims, CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_nothing_due(&*store, "noop").await;
    // The late word of its holder on what another has by now changes nothing.
    let message = &adopted.messages[0];
    let late = settle(&*store, lost[0], vec![verdict(message, Fate::Released)], true).await;
    assert_eq!(late.late, [message.message.seq]);
}

/// An outbox with nothing in queues has no lease; what was taken meanwhile goes by its own time.
pub async fn a_lease_goes_with_its_last_claim(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    enqueue_many(&*store, "noop", 2).await;
    let batch = take_under(&*store, lease, "noop", 1, CLAIM_TIME).await;
    keep(&*store, lease, &[batch.token], CLAIM_TIME).await;
    settle_dispatch(&*store, 1, &batch.messages[0].message, Fate::Sent).await;
    settle(&*store, batch.token, Vec::new(), true).await;
    let meanwhile = take_under(&*store, lease, "noop", 1, CLAIM_TIME).await.token;
    assert!(keep(&*store, lease, &[], CLAIM_TIME).await.is_empty());
    assert_eq!(outbox.claims().await, 1, "what was taken meanwhile");
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    // The same lease is made again when there is something to keep.
    assert!(keep(&*store, lease, &[meanwhile], CLAIM_TIME).await.is_empty());
    assert_eq!(outbox.claims().await, 2);
    assert!(keep(&*store, lease, &[], CLAIM_TIME).await.is_empty());
    assert!(keep(&*store, lease, &[], CLAIM_TIME).await.is_empty());
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(outbox.claims().await, 0);
}

/// A claim whose taker never heard of it would be held for as long as its relay lives.
pub async fn a_claim_that_its_relay_does_not_know_is_rescued(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    let claims = take_each(&*store, lease, 3).await;
    let_time_pass(&*store).await;
    assert!(keep(&*store, lease, &claims[..2], CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(keep(&*store, lease, &claims, CLAIM_TIME).await, claims[2..]);
    assert_eq!(outbox.claims().await, 3, "the lease, and two claims");
}

/// A relay that takes while it keeps its lease does not lose what it takes.
pub async fn a_claim_just_taken_is_no_stranger(outbox: &impl Harness) {
    let store = outbox.store().await;
    let lease = Token::random();
    enqueue_many(&*store, "noop", 2).await;
    let first = take_under(&*store, lease, "noop", 1, CLAIM_TIME).await.token;
    let second = take_under(&*store, lease, "noop", 1, CLAIM_TIME).await.token;
    assert!(keep(&*store, lease, &[first], CLAIM_TIME).await.is_empty());
    assert!(keep(&*store, lease, &[first, second], CLAIM_TIME).await.is_empty());
    outbox.expire_claims().await;
    assert!(keep(&*store, lease, &[first, second], CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
}

/// Each relay keeps its own, and a claim under no lease ends by its own time.
pub async fn a_lease_keeps_no_claim_of_another(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (lease, other) = (Token::random(), Token::random());
    let claims = take_each(&*store, lease, 2).await;
    let others = take_each(&*store, other, 1).await;
    let_time_pass(&*store).await;
    assert_eq!(keep(&*store, lease, &[claims[0], claims[1], others[0]], CLAIM_TIME).await, others);
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(outbox.claims().await, 3);
}
