//! The steps that contract tests are made of.

use chrono::{DateTime, SubsecRound as _, Utc};
use postroom_core::{
    ActionId, AttemptOutcome, Batch, Enqueued, Fate, Fence, Heartbeat, Intake, Message, MessageId,
    NewAction, NewMessage, Operation, Quota, RawJson, Record, RelayId, Rescued, Settled,
    Settlement, Store, Take, Taken, Token, Tried, Verdict,
};
use serde_json::json;
use std::slice;
use std::time::Duration;

/// Long enough that no claim expires by itself during a test.
pub(crate) const CLAIM_TIME: Duration = Duration::from_secs(600);

/// A message to `integration` with a payload of its own.
pub(crate) fn message(integration: &str) -> NewMessage {
    NewMessage::new(integration, "order.created.v1").stream("order-1").json(&json!({"orderId": 1}))
}

/// Enqueues a message that must be new, and returns its id.
pub(crate) async fn enqueue(store: &dyn Intake, message: &NewMessage) -> MessageId {
    match store.enqueue(message).await.expect("enqueue") {
        Enqueued::New(id) => id,
        Enqueued::Duplicate(id) => panic!("{id} should be new"),
    }
}

/// Enqueues `n` messages to `integration`; their ids in order.
pub(crate) async fn enqueue_many(
    store: &dyn Intake,
    integration: &str,
    n: usize,
) -> Vec<MessageId> {
    let mut ids = Vec::with_capacity(n);
    for _ in 0..n {
        ids.push(enqueue(store, &message(integration)).await);
    }
    ids
}

/// Takes up to `rows` messages of each lane, bounded by nothing else: all under one claim.
pub(crate) async fn take(
    store: &dyn Store,
    worker: &str,
    lanes: &[&str],
    rows: usize,
) -> Option<Batch> {
    take_within(store, worker, lanes, rows, |_| {}).await
}

/// The same with limits of the test's choice.
pub(crate) async fn take_within(
    store: &dyn Store,
    worker: &str,
    lanes: &[&str],
    rows: usize,
    limit: impl FnOnce(&mut Take<'_>),
) -> Option<Batch> {
    let mut batches = take_batches(store, worker, lanes, rows, limit).await;
    assert!(batches.len() < 2, "one claim is enough: {batches:?}");
    batches.pop()
}

/// The same where what is fresh and what is not may come together.
pub(crate) async fn take_batches(
    store: &dyn Store,
    worker: &str,
    lanes: &[&str],
    rows: usize,
    limit: impl FnOnce(&mut Take<'_>),
) -> Vec<Batch> {
    let quotas = quotas(lanes, rows);
    let mut take = wish(store, worker, &quotas).await;
    limit(&mut take);
    store.take(&take).await.expect("take")
}

/// Takes what is due in a lane and gives it back: nothing of it is fresh any more.
pub(crate) async fn give_back_all(store: &dyn Store, lane: &str) {
    for batch in take_batches(store, "hasty", &[lane], 1_000, |_| {}).await {
        let back = batch.messages.iter().map(|taken| verdict(taken, Fate::Released)).collect();
        assert_eq!(settle(store, batch.token, back, true).await, Settled::default());
    }
}

/// Takes what was rescued: claims of several messages, or else one message to be handled alone.
pub(crate) async fn take_rescued(store: &dyn Store, worker: &str, lanes: &[&str]) -> Vec<Batch> {
    let together = take_lost(store, worker, lanes, 10, Rescued::Together).await;
    if !together.is_empty() {
        return together;
    }
    take_lost(store, worker, lanes, 10, Rescued::Alone).await
}

/// Takes a rescued message of a lane to be handled alone: its claim cannot be halved.
pub(crate) async fn take_alone(store: &dyn Store, worker: &str, lane: &str) -> Batch {
    let mut alone = take_lost(store, worker, &[lane], 1, Rescued::Alone).await;
    alone.pop().expect("a rescued message")
}

/// Takes what was rescued, of one kind, in claims of up to half of `rows`.
pub(crate) async fn take_lost(
    store: &dyn Store,
    worker: &str,
    lanes: &[&str],
    rows: usize,
    which: Rescued,
) -> Vec<Batch> {
    let quotas = quotas(lanes, rows);
    let wish = wish(store, worker, &quotas).await;
    store.take_rescued(&wish, which).await.expect("take rescued")
}

/// Takes up to `rows` messages of a lane for a queue.
pub(crate) async fn take_for_queue(store: &dyn Store, lane: &str, rows: usize) -> Batch {
    let relay = fresh_relay(store, "dispatcher").await;
    take_by(store, relay, lane, rows, true).await
}

/// Takes up to `rows` messages of a lane for a relay that lives.
pub(crate) async fn take_by(
    store: &dyn Store,
    relay: RelayId,
    lane: &str,
    rows: usize,
    for_queue: bool,
) -> Batch {
    let quotas = quotas(&[lane], rows);
    let take = Take { for_queue, ..wish_of(relay, &quotas) };
    let mut batches = store.take(&take).await.expect("take");
    assert_eq!(batches.len(), 1, "due messages, under one claim");
    batches.remove(0)
}

/// A heartbeat of a relay with one lane; what it has lost.
pub(crate) async fn beat(
    store: &dyn Store,
    relay: RelayId,
    held: &[Token],
    claim_time: Duration,
) -> Vec<Token> {
    let beat = Heartbeat { relay, name: "relay", lanes: 1, held, claim_time };
    store.beat(&beat).await.expect("beat")
}

/// A relay that has just sent its only heartbeat. Each take of these steps has one of its own: its
/// claims last for [`CLAIM_TIME`] or until `Harness::expire_claims`, and no later take revives them.
pub(crate) async fn fresh_relay(store: &dyn Store, name: &str) -> RelayId {
    let relay = RelayId::random();
    let beat = Heartbeat { relay, name, lanes: 1, held: &[], claim_time: CLAIM_TIME };
    store.beat(&beat).await.expect("beat");
    relay
}

/// Takes one message of a lane, which must be due.
pub(crate) async fn take_one(store: &dyn Store, worker: &str, lane: &str) -> (Token, Taken) {
    let batch = take(store, worker, &[lane], 1).await.expect("a due message");
    let token = batch.token;
    (token, batch.messages.into_iter().next().expect("a batch has messages"))
}

/// Asserts that nothing at all can be taken from a lane.
pub(crate) async fn assert_nothing_due(store: &dyn Store, lane: &str) {
    if let Some(batch) = take(store, "nobody", &[lane], 10).await {
        panic!("taken, though nothing should be due: {:?}", ids(&batch));
    }
    let rescued = take_rescued(store, "nobody", &[lane]).await;
    assert!(rescued.is_empty(), "taken, though nothing was rescued: {rescued:?}");
}

fn quotas(lanes: &[&str], rows: usize) -> Vec<Quota> {
    lanes.iter().map(|lane| Quota { integration: (*lane).to_owned(), rows }).collect()
}

/// A wish that nothing but its quotas bounds, of a relay that lives.
pub(crate) async fn wish<'a>(store: &dyn Store, worker: &'a str, quotas: &'a [Quota]) -> Take<'a> {
    Take { worker, ..wish_of(fresh_relay(store, worker).await, quotas) }
}

/// The same, whether or not the relay lives.
pub(crate) fn wish_of(relay: RelayId, quotas: &[Quota]) -> Take<'_> {
    Take {
        worker: "relay",
        relay,
        quotas,
        rows: 100_000,
        bytes: 64 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}

/// The ids of a batch, in its order.
pub(crate) fn ids(batch: &Batch) -> Vec<MessageId> {
    batch.messages.iter().map(|taken| taken.message.id.clone()).collect()
}

/// A verdict on a taken message.
pub(crate) fn verdict(taken: &Taken, fate: Fate) -> Verdict {
    Verdict { seq: taken.message.seq, id: taken.message.id.clone(), fate }
}

/// A failure that is due again after `delay`.
pub(crate) fn failed(delay: Duration) -> Fate {
    Fate::Failed {
        delay,
        error: "503 from the receiver".to_owned(),
        took: Duration::from_millis(12),
    }
}

/// An attempt that the receiver rejected.
pub(crate) fn rejected() -> Tried {
    Tried { outcome: AttemptOutcome::Reject, took: Duration::from_millis(34) }
}

/// A death after a failed attempt, without an announcement.
pub(crate) fn dead() -> Fate {
    Fate::Dead {
        error: "400 from the receiver".to_owned(),
        tried: Some(rejected()),
        announcement: None,
    }
}

/// Settles one message that is all there is in its batch.
pub(crate) async fn settle_one(
    store: &dyn Store,
    token: Token,
    taken: &Taken,
    fate: Fate,
) -> Settled {
    settle(store, token, vec![verdict(taken, fate)], true).await
}

/// Settles verdicts on one batch.
pub(crate) async fn settle(
    store: &dyn Store,
    token: Token,
    verdicts: Vec<Verdict>,
    finished: bool,
) -> Settled {
    store
        .settle(&[Settlement { fence: Fence::Claim(token), verdicts, finished }])
        .await
        .expect("settle")
}

/// Settles one message by the number of its dispatch.
pub(crate) async fn settle_dispatch(
    store: &dyn Store,
    number: u32,
    message: &Message,
    fate: Fate,
) -> Settled {
    let fence = Fence::Dispatch { number, token: Token::random(), failed_before: None };
    let verdicts = vec![Verdict { seq: message.seq, id: message.id.clone(), fate }];
    store.settle(&[Settlement { fence, verdicts, finished: false }]).await.expect("settle")
}

/// The number of the dispatch that counts for a message; `None` when nothing is to be delivered.
pub(crate) async fn number(store: &dyn Store, id: &MessageId) -> Option<u32> {
    let dispatched = store.dispatched(slice::from_ref(id)).await.expect("dispatched").pop()?;
    if !dispatched.is_open() {
        return None;
    }
    assert_eq!(dispatched.message.id, *id);
    Some(dispatched.number)
}

/// Takes a message of a lane and gives it this fate; its record afterwards.
pub(crate) async fn take_and_settle(store: &dyn Store, lane: &str, fate: Fate) -> Record {
    let (token, taken) = take_one(store, "worker", lane).await;
    let settled = settle_one(store, token, &taken, fate).await;
    assert!(settled.late.is_empty());
    find(store, &taken.message.id).await
}

/// The record of a message that must be there.
pub(crate) async fn find(store: &dyn Store, id: &MessageId) -> Record {
    store.find(id).await.expect("find").unwrap_or_else(|| panic!("{id} is not there"))
}

/// The database's clock.
pub(crate) async fn now(store: &dyn Store) -> DateTime<Utc> {
    store.now().await.expect("now")
}

/// A moment in milliseconds, which every store keeps whole.
pub(crate) fn in_ms(at: DateTime<Utc>) -> DateTime<Utc> {
    at.trunc_subsecs(3)
}

/// Asserts that a moment lies between two readings of the database's clock, in milliseconds.
pub(crate) fn assert_between(before: DateTime<Utc>, at: DateTime<Utc>, after: DateTime<Utc>) {
    let (low, high) = (in_ms(before), after + Duration::from_millis(1));
    assert!(low <= at && at <= high, "{at} is not between {low} and {high}");
}

/// Asserts that two whole rows are the same; JSON counts as the same when it means the same.
pub(crate) fn assert_same(actual: &Record, expected: &Record) {
    assert_eq!(comparable(actual), comparable(expected));
}

fn comparable(record: &Record) -> (Record, serde_json::Value, Option<serde_json::Value>) {
    let value = |json: &RawJson| -> serde_json::Value {
        serde_json::from_str(json.as_str()).expect("a stored column is JSON")
    };
    let (payload, headers) =
        (value(&record.message.payload), record.message.headers.as_ref().map(value));
    let mut record = record.clone();
    record.message.payload = RawJson::trusted("null");
    record.message.headers = None;
    (record, payload, headers)
}

/// Puts an operation on record.
pub(crate) async fn begin(store: &dyn Store, operation: Operation) -> ActionId {
    let action = NewAction { actor: "ann@desk", operation, target: "a test" };
    store.begin_action(&action).await.expect("an action")
}
