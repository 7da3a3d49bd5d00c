//! Looking closer: by the beginning of an id, by error, and what is new or comes next.

use super::Harness;
use super::steps::{dead, enqueue, enqueue_many, failed, find, message, take_and_settle, take_one};
use postroom_core::{Fate, Filter, IdPrefix, MessageId, Record, Status};
use std::slice;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn ids(records: &[Record]) -> Vec<MessageId> {
    records.iter().map(|record| record.message.id.clone()).collect()
}

/// Whoever names a message types the beginning of its id: lowest first, in bounds.
pub async fn a_message_is_found_by_the_beginning_of_its_id(outbox: &impl Harness) {
    let store = outbox.store().await;
    let mut all = enqueue_many(&*store, "noop", 3).await;
    all.sort_unstable();
    let found = async |prefix: &str, limit| {
        let prefix: IdPrefix = prefix.parse().expect("a prefix");
        ids(&store.find_prefix(&prefix, limit).await.expect("find_prefix"))
    };
    let texts: Vec<String> = all.iter().map(MessageId::to_string).collect();
    // They were made within one second.
    let shared = &texts[0][..6];
    assert_eq!(found(shared, 10).await, all);
    assert_eq!(found(shared, 2).await, all[..2]);
    let whole = &texts[1];
    assert_eq!(found(whole, 10).await, [all[1].clone()]);
    assert_eq!(found(&whole.to_uppercase().replace('-', ""), 10).await, [all[1].clone()]);
    let beginning = found(&whole[..whole.len() - 4], 10).await;
    assert!(beginning.contains(&all[1]), "{beginning:?}");
    for nothing in ["00000000-0", "order-7", &format!("{whole}0")] {
        assert!(found(nothing, 10).await.is_empty(), "{nothing}");
    }
}

/// A part of the text, in upper or lower case; signs of patterns mean themselves.
pub async fn a_list_is_filtered_by_a_part_of_the_error(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("a")).await;
    let fate = Fate::Failed { delay: HOUR, error: "100% Refused".to_owned(), took: HOUR };
    let wanted = take_and_settle(&*store, "a", fate).await.message.id;
    enqueue(&*store, &message("a")).await;
    take_and_settle(&*store, "a", failed(HOUR)).await;
    enqueue(&*store, &message("a")).await;
    for status in [None, Some(Status::Failed)] {
        let list = async |error: &str| {
            let error = Some(error.to_owned());
            let filter = Filter { status, error, limit: 10, ..Filter::default() };
            ids(&store.list(&filter).await.expect("list"))
        };
        assert_eq!(list("% refused").await, slice::from_ref(&wanted), "{status:?}");
        assert!(list("1_0%").await.is_empty(), "{status:?}");
        assert!(list("' OR 1 = 1").await.is_empty(), "{status:?}");
    }
}

/// What many messages failed of, the most frequent first.
pub async fn errors_are_grouped_by_integration_and_text(outbox: &impl Harness) {
    let store = outbox.store().await;
    for (lane, fate) in
        [("a", dead()), ("a", failed(HOUR)), ("a", failed(HOUR)), ("b", failed(HOUR))]
    {
        enqueue(&*store, &message(lane)).await;
        take_and_settle(&*store, lane, fate).await;
    }
    enqueue(&*store, &message("a")).await;
    let groups = async |status, limit| {
        let filter = Filter { status, limit, ..Filter::default() };
        let groups = store.errors(&filter).await.expect("errors");
        for group in &groups {
            let example = find(&*store, &group.example).await;
            assert_eq!(example.message.integration, group.integration);
            assert_eq!(example.last_error.as_deref(), Some(group.error.as_str()));
            assert!(group.oldest <= example.message.created_at);
            assert!(group.newest >= example.message.created_at);
        }
        let told = groups.into_iter().map(|one| (one.integration, one.messages));
        told.collect::<Vec<(String, u64)>>()
    };
    let of = |lane: &str, messages| (lane.to_owned(), messages);
    assert_eq!(groups(Some(Status::Failed), 10).await, [of("a", 2), of("b", 1)]);
    assert_eq!(groups(Some(Status::Failed), 1).await, [of("a", 2)]);
    assert_eq!(groups(Some(Status::Dead), 10).await, [of("a", 1)]);
    assert_eq!(groups(Some(Status::Pending), 10).await, []);
    assert_eq!(groups(None, 10).await.len(), 3);
}

/// Those above a number, whatever became of them.
pub async fn new_messages_are_counted_by_integration(outbox: &impl Harness) {
    let store = outbox.store().await;
    assert_eq!(store.last_seq().await.expect("last_seq"), 0);
    assert!(store.arrived(0).await.expect("arrived").is_empty());
    enqueue(&*store, &message("a")).await;
    let mark = store.last_seq().await.expect("last_seq");
    enqueue_many(&*store, "a", 2).await;
    let last = find(&*store, &enqueue(&*store, &message("b")).await).await.message.seq;
    take_and_settle(&*store, "b", Fate::Sent).await;
    let arrived = store.arrived(mark).await.expect("arrived");
    let told: Vec<_> = arrived.iter().map(|one| (one.integration.as_str(), one.messages)).collect();
    assert_eq!(told, [("a", 2), ("b", 1)]);
    assert_eq!(arrived[1].last, last);
    assert_eq!(store.last_seq().await.expect("last_seq"), last);
}

/// Whoever follows deliveries sees new messages, and those that relays take next: dead ones never
/// are. Their content stays where it is.
pub async fn what_is_new_and_what_is_due_next_can_be_followed(outbox: &impl Harness) {
    let store = outbox.store().await;
    enqueue(&*store, &message("a")).await;
    let buried = take_and_settle(&*store, "a", dead()).await.message.seq;
    enqueue(&*store, &message("a")).await;
    let sent = take_and_settle(&*store, "a", Fate::Sent).await.message.seq;
    enqueue(&*store, &message("a")).await;
    let late = take_and_settle(&*store, "a", failed(HOUR)).await.message.seq;
    let due = find(&*store, &enqueue(&*store, &message("a")).await).await.message.seq;
    enqueue(&*store, &message("b")).await;
    let (_, held) = take_one(&*store, "worker", "b").await;
    let held = held.message.seq;

    let upcoming = async |after, limit| {
        let mut seqs = store.upcoming(after, limit).await.expect("upcoming");
        seqs.sort_unstable();
        seqs
    };
    assert_eq!(upcoming(held, 10).await, [late, due, held]);
    assert_eq!(upcoming(held, 2).await, [due, held]);
    assert_eq!(upcoming(0, 10).await, [buried, sent, late, due, held]);

    let mut states = store.states(&[sent, late, held, i64::MAX]).await.expect("states");
    states.sort_unstable_by_key(|record| record.message.seq);
    let told: Vec<_> = states.iter().map(|one| (one.message.seq, one.status.as_str())).collect();
    assert_eq!(told, [(sent, "SENT"), (late, "FAILED"), (held, "CLAIMED")]);
    assert_eq!(states[1].last_error, find(&*store, &states[1].message.id).await.last_error);
    assert!(states.iter().all(|one| one.message.payload.as_str() == "null"));
    assert!(store.states(&[]).await.expect("states").is_empty());
}
