//! Extending claims while work goes on.

use super::Harness;
use super::steps::{CLAIM_TIME, enqueue, enqueue_many, find, message, settle_one, take, take_one};
use postroom_core::{Fate, Token};
use std::time::Duration;

/// An extended claim outlives its first end.
pub async fn an_extended_claim_is_kept(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    outbox.expire_claims().await;
    assert!(store.extend(&[token], CLAIM_TIME).await.expect("extend").is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(find(&*store, id).await.status, "CLAIMED");
    assert!(settle_one(&*store, token, &taken, Fate::Sent).await.late.is_empty());
}

/// A claim that is gone is reported, and stays gone.
pub async fn a_lost_claim_is_reported(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 2).await;
    let lost = take(&*store, "worker", &["noop"], 1).await.expect("due").token;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let held = take(&*store, "worker", &["noop"], 1).await.expect("due").token;
    let unknown = Token::random();

    let mut reported = store.extend(&[lost, held, unknown], CLAIM_TIME).await.expect("extend");
    reported.sort();
    let mut expected = [lost, unknown];
    expected.sort();
    assert_eq!(reported, expected);
    assert!(store.extend(&[], CLAIM_TIME).await.expect("extend").is_empty());
    assert_eq!(outbox.claims().await, 1);
}

/// A claim that nobody extends ends by the database's clock.
pub async fn a_claim_ends_when_nobody_extends_it(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let (token, _) = take_one(&*store, "worker", "noop").await;
    store.extend(&[token], Duration::ZERO).await.expect("extend");
    crate::eventually("the claim to end", Duration::from_secs(30), async || {
        (store.rescue(10).await.expect("rescue") == 1).then_some(())
    })
    .await;
}
