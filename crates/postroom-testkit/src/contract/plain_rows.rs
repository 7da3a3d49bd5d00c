//! Rows by plain INSERT: what works with the first columns alone, and what the database refuses.

use super::steps::{
    assert_between, assert_nothing_due, find, ids, now, take, take_batches, take_one,
};
use super::{Harness, PlainRow};
use crate::skip;
use chrono::{DateTime, Utc};
use postroom_core::ContentFault;

/// A producer that knows no more than the seed's columns is served in full.
pub async fn a_row_with_the_required_columns_is_delivered(outbox: &impl Harness) {
    let store = outbox.store().await;
    let row = PlainRow::new("noop");
    let before = now(&*store).await;
    let id = outbox.insert(&row).await.expect("a plain row");
    let after = now(&*store).await;

    let record = find(&*store, &id).await;
    assert_eq!(record.message.id.as_uuid().expect("a UUID").get_version_num(), 7);
    assert_eq!(record.status, "PENDING");
    assert_eq!((record.message.attempts, record.message.max_attempts), (0, 10));
    assert_eq!((record.message.copy, record.message.schema_version), (0, 1));
    assert_eq!(Some(record.message.event_id.as_str()), row.get("source_event_id"));
    assert_eq!((record.message.headers, record.message.occurred_at), (None, None));
    assert_eq!((record.sent_at, record.last_error), (None, None));
    for at in [record.message.created_at, record.message.due_at, record.updated_at] {
        assert_between(before, at, after);
    }
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!(taken.message.id, id);
}

/// Every column of a plain row arrives.
pub async fn a_row_with_every_known_column_is_read_whole(outbox: &impl Harness) {
    let store = outbox.store().await;
    let row = PlainRow::new("noop")
        .with("headers", "{\"k\": \"v\"}")
        .with("tenant_id", "acme")
        .with("user_id", "it's me")
        .with("correlation_id", "corr-1")
        .with("due_at", "2020-01-01T02:00:00.250+02:00")
        .with("attempts", "2")
        .with("max_attempts", "5")
        .with("status", "FAILED");
    let id = outbox.insert(&row).await.expect("a plain row");
    let message = find(&*store, &id).await.message;
    assert_eq!(message.headers.as_ref().map(|json| json.is_object()), Some(true));
    assert_eq!(message.tenant_id.as_deref(), Some("acme"));
    assert_eq!(message.user_id.as_deref(), Some("it's me"));
    assert_eq!(message.correlation_id.as_deref(), Some("corr-1"));
    assert_eq!((message.attempts, message.max_attempts), (2, 5));
    let due: DateTime<Utc> = "2020-01-01T00:00:00.250Z".parse().expect("a time");
    assert_eq!(message.due_at, due);
    // FAILED and due is claimable.
    let (_, taken) = take_one(&*store, "worker", "noop").await;
    assert_eq!(taken.message.id, id);
}

/// A time with a zone is that instant; what is due later is not taken.
pub async fn a_due_time_in_another_zone_is_the_same_instant(outbox: &impl Harness) {
    let store = outbox.store().await;
    let row = PlainRow::new("noop").with("due_at", "2999-12-31T23:30:00-01:00");
    let id = outbox.insert(&row).await.expect("a plain row");
    let due: DateTime<Utc> = "3000-01-01T00:30:00Z".parse().expect("a time");
    assert_eq!(find(&*store, &id).await.message.due_at, due);
    assert_nothing_due(&*store, "noop").await;
}

/// A producer whose zero time is the year 1 means: now.
pub async fn a_due_time_long_ago_is_due(outbox: &impl Harness) {
    let store = outbox.store().await;
    for due in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z"] {
        let row = PlainRow::new("noop").with("due_at", due);
        let id = outbox.insert(&row).await.expect("a plain row");
        let (_, taken) = take_one(&*store, "worker", "noop").await;
        assert_eq!(taken.message.id, id);
        assert_eq!(taken.message.due_at, due.parse::<DateTime<Utc>>().expect("a time"));
    }
}

/// A maximum of attempts below one makes no sense.
pub async fn fault_41_max_attempts_below_one_is_refused(outbox: &impl Harness) {
    if !checks_constraints(outbox, "fault_41_max_attempts_below_one_is_refused") {
        return;
    }
    for attempts in ["0", "-1", "-2147483648"] {
        assert_refused(outbox, PlainRow::new("noop").with("max_attempts", attempts)).await;
    }
}

/// A due time must be a moment.
pub async fn fault_41_a_due_time_that_is_no_moment_is_refused(outbox: &impl Harness) {
    for due in ["infinity", "-infinity", "soon", ""] {
        assert_refused(outbox, PlainRow::new("noop").with("due_at", due)).await;
    }
}

/// Attempts count from zero.
pub async fn negative_attempts_are_refused(outbox: &impl Harness) {
    if !checks_constraints(outbox, "negative_attempts_are_refused") {
        return;
    }
    assert_refused(outbox, PlainRow::new("noop").with("attempts", "-1")).await;
}

/// A dispatcher that claims by writing CLAIMED would deliver everything a second time.
pub async fn the_status_claimed_is_refused(outbox: &impl Harness) {
    if !checks_constraints(outbox, "the_status_claimed_is_refused") {
        return;
    }
    assert_refused(outbox, PlainRow::new("noop").with("status", "CLAIMED")).await;
    let id = outbox.insert(&PlainRow::new("noop")).await.expect("a plain row");
    outbox.set_status(&id, "CLAIMED").await.expect_err("must be refused");
    assert_eq!(find(&*outbox.store().await, &id).await.status, "PENDING");
}

/// Payload and headers are JSON.
pub async fn what_is_no_json_is_refused(outbox: &impl Harness) {
    if !checks_constraints(outbox, "what_is_no_json_is_refused") {
        return;
    }
    assert_refused(outbox, PlainRow::new("noop").with("payload", "{")).await;
    assert_refused(outbox, PlainRow::new("noop").with("headers", "k=v")).await;
}

/// The fence holds for plain rows too.
pub async fn the_same_event_twice_is_refused(outbox: &impl Harness) {
    let row = PlainRow::new("noop");
    outbox.insert(&row).await.expect("a plain row");
    outbox.insert(&row).await.expect_err("must be refused");
    assert_eq!(outbox.deliveries().await, 1);
}

/// Headers that no sink could send come with their fault, and their lane goes on.
pub async fn headers_that_are_no_object_come_with_a_fault(outbox: &impl Harness) {
    let store = outbox.store().await;
    for headers in ["[1]", "\"text\"", "7", "true"] {
        outbox.insert(&PlainRow::new("noop").with("headers", headers)).await.expect("a row");
    }
    let good = outbox.insert(&PlainRow::new("noop")).await.expect("a plain row");
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(batch.messages.len(), 5);
    for taken in &batch.messages {
        let expected = (taken.message.id != good).then_some(ContentFault::HeadersNoObject);
        assert_eq!(taken.fault, expected);
    }
}

/// A row that is DEAD or SENT from the start is not delivered.
pub async fn dead_and_sent_rows_are_not_taken(outbox: &impl Harness) {
    let store = outbox.store().await;
    outbox.insert(&PlainRow::new("noop").with("status", "DEAD")).await.expect("a dead row");
    outbox.insert(&PlainRow::new("noop").with("status", "SENT")).await.expect("a sent row");
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(outbox.deliveries().await, 1);
}

/// A status nobody knows is shown as it stands, and left alone.
pub async fn a_row_with_an_unknown_status_is_left_alone(outbox: &impl Harness) {
    let store = outbox.store().await;
    let row = PlainRow::new("noop").with("status", "ON_HOLD");
    let id = outbox.insert(&row).await.expect("a plain row");
    assert_nothing_due(&*store, "noop").await;
    store.reconcile().await.expect("reconcile");
    assert_nothing_due(&*store, "noop").await;
    assert_eq!(find(&*store, &id).await.status, "ON_HOLD");
    let counts = store.status_counts().await.expect("counts");
    assert_eq!(counts.counts, [("ON_HOLD".to_owned(), 1)]);
}

/// A server that does not check what the table demands gets a visible skip.
fn checks_constraints(outbox: &impl Harness, line: &str) -> bool {
    let checks = outbox.checks_constraints();
    if let Err(reason) = checks {
        skip(&format!("{} {line}", outbox.name()), reason);
    }
    checks.is_ok()
}

async fn assert_refused(outbox: &impl Harness, row: PlainRow) {
    let answer = outbox.insert(&row).await;
    assert!(answer.is_err(), "accepted: {row:?}");
    assert_eq!(outbox.deliveries().await, 0);
}

/// A number that is taken is refused, or both messages are delivered: they share nothing by it.
pub async fn a_number_that_is_taken_loses_no_message(outbox: &impl Harness) {
    let store = outbox.store().await;
    let first = outbox.insert(&PlainRow::new("noop")).await.expect("a row");
    let seq = find(&*store, &first).await.message.seq;
    let row = PlainRow::new("noop").with("seq", &seq.to_string());
    let mut kept = vec![first];
    kept.extend(outbox.insert(&row).await.ok());
    let next = PlainRow::new("noop").with("seq", &(seq + 1).to_string());
    kept.push(outbox.insert(&next).await.expect("the next one is free"));
    kept.sort();
    let batches = take_batches(&*store, "worker", &["noop"], 10, |_| {}).await;
    let mut taken: Vec<_> = batches.iter().flat_map(ids).collect();
    taken.sort();
    assert_eq!(taken, kept);
}
