//! Fencing: the late word of a relay that lost its claim changes nothing.

use super::Harness;
use super::steps::{
    assert_same, dead, enqueue, enqueue_many, failed, find, message, rejected, settle, settle_one,
    take, take_one, take_rescued, verdict,
};
use postroom_core::{Fate, Fence, Settled, Settlement, Taken, Token, announce_dead};
use std::time::Duration;

/// A relay that was paused past its claim comes back, and changes no row.
pub async fn fault_07_a_late_completion_changes_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let postponed = Fate::Postponed { delay: Duration::ZERO };
    for fate in [Fate::Sent, failed(Duration::ZERO), dead(), Fate::Released, postponed] {
        let id = enqueue(&*store, &message("noop")).await;
        let (token, taken) = take_one(&*store, "paused", "noop").await;
        outbox.expire_claims().await;
        assert_eq!(store.rescue(10).await.expect("rescue"), 1);
        let rescued = find(&*store, &id).await;
        let late = settle_one(&*store, token, &taken, fate.clone()).await;
        assert_eq!(late.late, [taken.message.seq]);
        assert_same(&find(&*store, &id).await, &rescued);

        // Nor does it while another relay holds the message.
        let other = take_rescued(&*store, "other", &["noop"]).await.pop().expect("rescued");
        let held = find(&*store, &id).await;
        let late = settle_one(&*store, token, &taken, fate).await;
        assert_eq!(late.late, [taken.message.seq]);
        assert_same(&find(&*store, &id).await, &held);
        let settled = settle_one(&*store, other.token, &other.messages[0], Fate::Sent).await;
        assert_eq!(settled, Settled::default());
    }
}

/// Nor does it after another relay has settled the message.
pub async fn a_late_word_on_a_settled_message_changes_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "paused", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let other = take_rescued(&*store, "other", &["noop"]).await.pop().expect("rescued");
    settle_one(&*store, other.token, &other.messages[0], Fate::Sent).await;
    let sent = find(&*store, &id).await;
    for fate in [Fate::Sent, failed(Duration::ZERO), dead()] {
        let settled = settle_one(&*store, token, &taken, fate).await;
        assert_eq!(settled.late, [taken.message.seq]);
        assert_same(&find(&*store, &id).await, &sent);
    }
    assert_eq!(outbox.deliveries().await, 0);
}

/// A late death is not announced.
pub async fn a_late_death_is_not_announced(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "paused", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let fate = announced_death(&taken);
    assert_eq!(settle_one(&*store, token, &taken, fate).await.late, [taken.message.seq]);
    assert!(take(&*store, "worker", &["kafka:dead"], 10).await.is_none());
}

/// A relay that lost a message and took it again records both words in one call: the one that counts is
/// announced, whatever became of the other.
pub async fn a_death_is_announced_beside_a_late_word_on_the_same_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (token, taken) = take_one(&*store, "worker", "noop").await;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    let again = take_rescued(&*store, "worker", &["noop"]).await.pop().expect("rescued");
    let death = announced_death(&again.messages[0]);
    let settlement = |token, one, fate| Settlement {
        fence: Fence::Claim(token),
        verdicts: vec![verdict(one, fate)],
        finished: true,
    };
    let settlements = [
        settlement(token, &taken, failed(Duration::ZERO)),
        settlement(again.token, &again.messages[0], death),
    ];
    store.settle(&settlements).await.expect("settle");
    assert_eq!(find(&*store, &id).await.status, "DEAD");
    let announcements = take(&*store, "worker", &["kafka:dead"], 10).await.expect("one");
    assert_eq!(announcements.messages.len(), 1);
}

fn announced_death(taken: &Taken) -> Fate {
    Fate::Dead {
        error: "400".to_owned(),
        tried: Some(rejected()),
        announcement: Some(Box::new(announce_dead(&taken.message, "400", 1, "kafka:dead"))),
    }
}

/// A token nobody gave out fences everything off.
pub async fn an_unknown_token_settles_nothing(outbox: &impl Harness) {
    let store = outbox.store().await;
    let id = enqueue(&*store, &message("noop")).await;
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    let before = find(&*store, &id).await;
    let settled = settle_one(&*store, Token::random(), &taken, Fate::Sent).await;
    assert_eq!(settled.late, [taken.message.seq]);
    assert_same(&find(&*store, &id).await, &before);
    assert_eq!(outbox.claims().await, 1);
}

/// A settlement whose outcome was unknown is repeated: it is not late, and happens once.
pub async fn fault_06_a_repeated_settlement_happens_once(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 3).await;
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    let [a, b, c] = &batch.messages[..] else { panic!("three messages") };
    let death = announced_death(c);
    let verdicts = vec![
        verdict(a, Fate::Sent),
        verdict(b, failed(Duration::from_secs(60))),
        verdict(c, death),
    ];
    let mut records = Vec::new();
    for round in 0..3 {
        let settled = settle(&*store, batch.token, verdicts.clone(), true).await;
        assert_eq!(settled, Settled::default(), "round {round}");
        let mut now = Vec::new();
        for taken in &batch.messages {
            now.push(find(&*store, &taken.message.id).await);
        }
        if round == 0 {
            records = now;
        } else {
            records.iter().zip(&now).for_each(|(first, again)| assert_same(again, first));
        }
    }
    let announcements = take(&*store, "worker", &["kafka:dead"], 10).await.expect("one");
    assert_eq!(announcements.messages.len(), 1);
}

/// Late and timely verdicts in one settlement: the timely ones count.
pub async fn a_settlement_that_is_late_in_part_counts_in_part(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue_many(&*store, "noop", 2).await;
    let lost = take(&*store, "worker", &["noop"], 1).await.expect("due");
    let held = take(&*store, "worker", &["noop"], 1).await.expect("due");
    let verdicts =
        vec![verdict(&lost.messages[0], Fate::Sent), verdict(&held.messages[0], Fate::Sent)];
    let settled = settle(&*store, held.token, verdicts, true).await;
    assert_eq!(settled.late, [lost.messages[0].message.seq]);
    assert_eq!(find(&*store, &held.messages[0].message.id).await.status, "SENT");
    assert_eq!(find(&*store, &lost.messages[0].message.id).await.status, "CLAIMED");
}
