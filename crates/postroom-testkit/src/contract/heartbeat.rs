//! Relays' rows: what a heartbeat keeps, and what becomes of claims without one.

use super::Harness;
use super::steps::{
    CLAIM_TIME, assert_between, assert_nothing_due, beat, enqueue, enqueue_many, find, message,
    now, settle, settle_one, take, take_alone, take_by, take_for_queue, take_one, take_rescued,
    verdict, wish_of,
};
use postroom_core::{
    Fate, Heartbeat, Quota, RelayId, Rescued, Settled, Store, StoreErrorKind, Token,
};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
/// Over as soon as the clock has gone on.
const AN_INSTANT: Duration = Duration::from_millis(1);

/// A relay that lives, with `n` messages, each under a claim of its own, as under thin traffic.
async fn relay_with_claims(store: &dyn Store, n: usize, for_queue: bool) -> (RelayId, Vec<Token>) {
    let relay = RelayId::random();
    beat(store, relay, &[], CLAIM_TIME).await;
    enqueue_many(store, "noop", n).await;
    let mut claims = Vec::with_capacity(n);
    for _ in 0..n {
        claims.push(take_by(store, relay, "noop", 1, for_queue).await.token);
    }
    (relay, claims)
}

/// Waits until the database's clock has gone on, so that what lasted for an instant is over.
async fn let_time_pass(store: &dyn Store) {
    let began = now(store).await;
    crate::eventually("the clock to go on", SOON, async || {
        (now(store).await - began >= chrono::TimeDelta::milliseconds(5)).then_some(())
    })
    .await;
}

/// A relay whose row had expired holds its claims again, if nobody was faster.
pub async fn a_heartbeat_keeps_claims(outbox: &impl Harness) {
    let store = outbox.store().await;
    let relay = RelayId::random();
    beat(&*store, relay, &[], CLAIM_TIME).await;
    let id = enqueue(&*store, &message("noop")).await;
    let batch = take_by(&*store, relay, "noop", 1, false).await;
    outbox.expire_claims().await;
    assert!(beat(&*store, relay, &[batch.token], CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(find(&*store, &id).await.status, "CLAIMED");
    let settled = settle_one(&*store, batch.token, &batch.messages[0], Fate::Sent).await;
    assert!(settled.late.is_empty());
}

/// One heartbeat keeps many claims, those for queues as well as others, and they settle as ever.
pub async fn one_heartbeat_keeps_every_claim_of_its_relay(outbox: &impl Harness) {
    let store = outbox.store().await;
    let relay = RelayId::random();
    beat(&*store, relay, &[], CLAIM_TIME).await;
    enqueue_many(&*store, "noop", 3).await;
    let first = take_by(&*store, relay, "noop", 2, true).await;
    let second = take_by(&*store, relay, "noop", 1, false).await;
    assert_eq!(outbox.claims().await, 2);
    outbox.expire_claims().await;
    assert!(beat(&*store, relay, &[first.token, second.token], CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_nothing_due(&*store, "noop").await;
    for batch in [&first, &second] {
        let sent = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
        assert_eq!(settle(&*store, batch.token, sent, true).await, Settled::default());
    }
    assert_eq!(outbox.claims().await, 0);
}

/// A claim that is gone is reported, and stays gone.
pub async fn a_lost_claim_is_reported(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 1, false).await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    beat(&*store, relay, &[], CLAIM_TIME).await;
    enqueue(&*store, &message("noop")).await;
    let held = take_by(&*store, relay, "noop", 1, false).await.token;
    let unknown = Token::random();

    let mut reported = beat(&*store, relay, &[claims[0], held, unknown], CLAIM_TIME).await;
    reported.sort();
    let mut expected = [claims[0], unknown];
    expected.sort();
    assert_eq!(reported, expected);
    assert_eq!(outbox.claims().await, 1);
}

/// Claims end with their relay's heartbeat, by the database's clock.
pub async fn claims_end_when_the_heartbeat_ends(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 2, false).await;
    beat(&*store, relay, &claims, Duration::ZERO).await;
    let mut freed = 0;
    crate::eventually("the claims to end", SOON, async || {
        freed += store.rescue(10).await.expect("rescue");
        (freed == 2).then_some(())
    })
    .await;
    assert_eq!(take_rescued(&*store, "next", &["noop"]).await[0].messages[0].rescues, 1);
}

/// What a relay that died had in queues is freed in rounds that are bounded, counts no rescue, and
/// is taken again like any other message.
pub async fn claims_for_a_queue_count_no_rescue(outbox: &impl Harness) {
    let store = outbox.store().await;
    relay_with_claims(&*store, 5, true).await;
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

/// A relay that slept for too long is told which claims others have rescued meanwhile, and holds the
/// rest as before.
pub async fn what_nobody_rescued_is_held_again(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, mut claims) = relay_with_claims(&*store, 4, true).await;
    outbox.expire_claims().await;
    let freed = store.rescue(2).await.expect("rescue");
    assert_eq!(freed, 2);
    let adopted = take_for_queue(&*store, "noop", 10).await;
    assert_eq!(adopted.messages.len() as u64, freed);

    let lost = beat(&*store, relay, &claims, CLAIM_TIME).await;
    assert_eq!(lost.len() as u64, freed);
    claims.retain(|token| !lost.contains(token));
    assert!(beat(&*store, relay, &claims, CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_nothing_due(&*store, "noop").await;
    // The late word of its holder on what another has by now changes nothing.
    let message = &adopted.messages[0];
    let late = settle(&*store, lost[0], vec![verdict(message, Fate::Released)], true).await;
    assert_eq!(late.late, [message.message.seq]);
}

/// A claim whose take was never answered would be held for as long as its relay lives. It is given up
/// instead, and counts against nobody.
pub async fn a_claim_that_its_relay_does_not_know_is_given_up(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 3, false).await;
    let_time_pass(&*store).await;
    assert!(beat(&*store, relay, &claims[..2], AN_INSTANT).await.is_empty());
    assert!(beat(&*store, relay, &claims[..2], CLAIM_TIME).await.is_empty());
    assert_eq!(beat(&*store, relay, &claims, CLAIM_TIME).await, claims[2..]);
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(outbox.claims().await, 2);
    let (_, taken) = take_one(&*store, "next", "noop").await;
    assert_eq!((taken.rescues, taken.message.attempts), (0, 0));
}

/// Nor does one that held a rescued message alone count an attempt: nobody has tried it.
pub async fn a_claim_that_is_given_up_counts_no_attempt(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    take_one(&*store, "dying", "noop").await;
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let relay = RelayId::random();
    beat(&*store, relay, &[], CLAIM_TIME).await;
    let quotas = [Quota { integration: "noop".to_owned(), rows: 1 }];
    let alone = store.take_rescued(&wish_of(relay, &quotas), Rescued::Alone).await.expect("take");
    assert_eq!(alone.len(), 1);
    let_time_pass(&*store).await;
    beat(&*store, relay, &[], AN_INSTANT).await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    let again = take_alone(&*store, "next", "noop").await;
    assert_eq!((again.messages[0].rescues, again.messages[0].message.attempts), (1, 0));
    assert!(store.attempts(&id).await.expect("attempts").is_empty());
}

/// A relay that takes while it sends a heartbeat does not lose what it takes.
pub async fn a_claim_just_taken_is_not_given_up(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 2, false).await;
    assert!(beat(&*store, relay, &claims[..1], CLAIM_TIME).await.is_empty());
    assert!(beat(&*store, relay, &claims, CLAIM_TIME).await.is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
}

/// Others need not wait for the end of a relay that says that it goes.
pub async fn a_relay_that_leaves_frees_its_claims_at_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 2, false).await;
    store.leave(relay).await.expect("leave");
    store.leave(relay).await.expect("leave again");
    assert!(store.relays().await.expect("relays").iter().all(|row| row.id != relay));
    assert_eq!(store.rescue(10).await.expect("rescue"), 2);
    assert_eq!(outbox.claims().await, 0);
    assert_eq!(beat(&*store, relay, &claims, CLAIM_TIME).await.len(), 2);
}

/// Each relay keeps its own claims, and no other's.
pub async fn the_claims_of_two_relays_are_independent(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, claims) = relay_with_claims(&*store, 2, false).await;
    let (_, others) = relay_with_claims(&*store, 1, false).await;
    outbox.expire_claims().await;
    let held = [claims[0], claims[1], others[0]];
    assert_eq!(beat(&*store, relay, &held, CLAIM_TIME).await, others);
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    assert_eq!(outbox.claims().await, 2);
    assert!(beat(&*store, relay, &claims, CLAIM_TIME).await.is_empty());
}

/// Claims that are born expired would be anybody's at once.
pub async fn nothing_is_taken_without_a_living_relay(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (relay, quotas) = (RelayId::random(), [Quota { integration: "noop".to_owned(), rows: 10 }]);
    let wish = wish_of(relay, &quotas);
    assert!(store.take(&wish).await.expect("nothing is due").is_empty());
    enqueue_many(&*store, "noop", 2).await;
    take(&*store, "dying", &["noop"], 1).await.expect("due");
    outbox.expire_claims().await;
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    for has_row in [false, true] {
        if has_row {
            beat(&*store, relay, &[], CLAIM_TIME).await;
            outbox.expire_claims().await;
        }
        let error = store.take(&wish).await.expect_err("no living relay");
        assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains("heartbeat"), "{error}");
        let error = store.take_rescued(&wish, Rescued::Together).await.expect_err("nor here");
        assert_eq!(error.kind, StoreErrorKind::Conflict, "{error}");
        assert_eq!(outbox.claims().await, 0);
    }
    beat(&*store, relay, &[], CLAIM_TIME).await;
    assert_eq!(store.take(&wish).await.expect("take").len(), 1);
    assert_eq!(store.take_rescued(&wish, Rescued::Together).await.expect("take").len(), 1);
}

/// Operators see who lives, since when, and what each holds.
pub async fn relays_are_listed(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert!(store.relays().await.expect("relays").is_empty());
    let before = now(&*store).await;
    let (first, second) = (RelayId::random(), RelayId::random());
    let named =
        |relay, name, lanes| Heartbeat { relay, name, lanes, held: &[], claim_time: CLAIM_TIME };
    store.beat(&named(second, "b's relay: \"zweites\" Büro", 3)).await.expect("beat");
    store.beat(&named(first, "a", 1)).await.expect("beat");
    let began = store.relays().await.expect("relays");
    // A later heartbeat says what is so then, and does not change when the relay began.
    store.beat(&named(first, "a", 2)).await.expect("beat");
    let after = now(&*store).await;
    enqueue_many(&*store, "noop", 2).await;
    take_by(&*store, second, "noop", 1, false).await;
    take_by(&*store, second, "noop", 1, true).await;
    let rows = store.relays().await.expect("relays");
    let shown: Vec<_> =
        rows.iter().map(|row| (row.id, &*row.name, row.lanes, row.claims)).collect();
    assert_eq!(shown, [(first, "a", 2, 0), (second, "b's relay: \"zweites\" Büro", 3, 2)]);
    for (row, first) in rows.iter().zip(&began) {
        assert_eq!((row.started_at, &row.version), (first.started_at, &first.version));
        assert!(!row.version.is_empty());
        assert_between(before, row.started_at, after);
        assert_between(before + CLAIM_TIME, row.until, after + CLAIM_TIME);
    }
}

/// One that died is shown for some time, and its row stays while it holds claims. That of a single
/// call goes at once.
pub async fn expired_relays_are_forgotten(outbox: &impl Harness) {
    let store = outbox.store().await;
    let (served, called, holding) = (RelayId::random(), RelayId::random(), RelayId::random());
    let a_call =
        |relay| Heartbeat { relay, name: "call", lanes: 0, held: &[], claim_time: CLAIM_TIME };
    beat(&*store, served, &[], CLAIM_TIME).await;
    store.beat(&a_call(called)).await.expect("beat");
    store.beat(&a_call(holding)).await.expect("beat");
    enqueue(&*store, &message("noop")).await;
    take_by(&*store, holding, "noop", 1, false).await;
    outbox.expire_claims().await;
    let other = RelayId::random();
    beat(&*store, other, &[], CLAIM_TIME).await;
    let listed = async || {
        let rows = store.relays().await.expect("relays");
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let rows = listed().await;
    assert!(rows.contains(&served) && rows.contains(&holding) && !rows.contains(&called));
    assert_eq!(store.rescue(10).await.expect("rescue"), 1);
    beat(&*store, other, &[], CLAIM_TIME).await;
    let rows = listed().await;
    assert!(rows.contains(&served) && !rows.contains(&holding));
}
