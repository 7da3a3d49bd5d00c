//! Content that is small in the table and large, or no text at all, when it is read.

use super::steps::{enqueue, ids, message, settle, take, take_batches, take_within, verdict};
use super::{Harness, PlainRow};
use postroom_core::{ContentFault, Fate, MessageId};

/// Inserts a row whose payload is a list of numbers: in jsonb 16 bytes each, as text 131,072.
/// `None` where the store refuses such numbers, which is reported.
async fn insert_numbers(outbox: &impl Harness, test: &str, count: usize) -> Option<MessageId> {
    let numbers = format!("[{}]", vec!["1e131071"; count].join(","));
    match outbox.insert(&PlainRow::new("noop").with("payload", &numbers)).await {
        Ok(id) => Some(id),
        Err(reason) => {
            crate::skip(&format!("{} {test}", outbox.name()), &reason);
            None
        }
    }
}

/// Over 1 GB as text, which PostgreSQL cannot make: that row has a fault, its neighbours have none.
pub async fn fault_48_a_payload_that_cannot_become_text_is_a_fault_of_its_row(
    outbox: &impl Harness,
) {
    let test = "fault_48_a_payload_that_cannot_become_text_is_a_fault_of_its_row";
    let store = outbox.store().await;
    let Some(huge) = insert_numbers(outbox, test, 8_200).await else { return };
    let small = enqueue(&*store, &message("noop")).await;
    let other = enqueue(&*store, &message("other")).await;
    let batch = take(&*store, "worker", &["noop", "other"], 10).await.expect("due");
    assert_eq!(ids(&batch), [huge.clone(), small, other]);
    for taken in &batch.messages {
        assert!(taken.message.weight() <= 1 << 20, "{} bytes", taken.message.weight());
        assert!(taken.fault.is_none() || taken.message.id == huge, "{:?}", taken.fault);
    }
    let verdicts = batch.messages.iter().map(|taken| verdict(taken, Fate::Sent)).collect();
    assert!(settle(&*store, batch.token, verdicts, true).await.late.is_empty());
    // Who looks for it finds it.
    store.find(&huge).await.expect("find").expect("the message");
}

/// A row that grows is read as far as it is within the limit, and has a fault beyond.
pub async fn fault_48_a_payload_that_grows_is_read_within_its_limit(outbox: &impl Harness) {
    let test = "fault_48_a_payload_that_grows_is_read_within_its_limit";
    let store = outbox.store().await;
    let Some(within) = insert_numbers(outbox, test, 1).await else { return };
    let beyond = insert_numbers(outbox, test, 100).await.expect("as before");
    let batch = take(&*store, "worker", &["noop"], 10).await.expect("due");
    assert_eq!(ids(&batch), [within, beyond]);
    assert_eq!(batch.messages[0].fault, None);
    for taken in &batch.messages {
        assert!(taken.message.weight() <= 1 << 20, "{} bytes", taken.message.weight());
        let too_large = Some(ContentFault::TooLarge { limit: 1 << 20 });
        assert!(taken.fault.is_none() || taken.fault == too_large, "{:?}", taken.fault);
    }
}

/// Rows that are small in the table do not add up to more than a batch may have once they are read.
pub async fn fault_48_rows_that_grow_together_are_taken_in_several_batches(outbox: &impl Harness) {
    const BYTES: usize = 1 << 20;
    let test = "fault_48_rows_that_grow_together_are_taken_in_several_batches";
    let store = outbox.store().await;
    let mut expected = Vec::new();
    for _ in 0..40 {
        let Some(id) = insert_numbers(outbox, test, 4).await else { return };
        expected.push(id);
    }
    let mut found = Vec::new();
    loop {
        let batches =
            take_batches(&*store, "worker", &["noop"], 100, |take| take.bytes = BYTES).await;
        if batches.is_empty() {
            break;
        }
        let messages = batches.iter().flat_map(|batch| &batch.messages);
        let bytes: usize = messages.map(|taken| taken.message.weight()).sum();
        // Their size in the table is an estimate, and the last one may cross the limit.
        assert!(bytes <= 5 * BYTES, "{bytes} bytes at once");
        found.extend(batches.iter().flat_map(ids));
    }
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "each is taken once");
}

/// Headers over the relay's limit are not read, and say so.
pub async fn fault_48_headers_over_their_limit_come_with_a_fault(outbox: &impl Harness) {
    let store = outbox.store().await;
    let headers = format!("{{\"note\": \"{}\"}}", "x".repeat(70_000));
    let row = PlainRow::new("noop").with("headers", &headers);
    let large = outbox.insert(&row).await.expect("a plain row");
    let small = enqueue(&*store, &message("noop")).await;
    let batch = take_within(&*store, "worker", &["noop"], 10, |take| take.payload_limit = 1_000)
        .await
        .expect("due");
    assert_eq!(ids(&batch), [large, small]);
    let [first, second] = &batch.messages[..] else { panic!("two messages") };
    assert_eq!(first.fault, Some(ContentFault::HeadersTooLarge { limit: 65_536 }));
    assert_eq!((&first.message.headers, &second.fault), (&None, &None));
}

/// Some ORMs write JSON's null where SQL's is meant.
pub async fn headers_that_are_null_are_none(outbox: &impl Harness) {
    let store = outbox.store().await;
    outbox.insert(&PlainRow::new("noop").with("headers", "null")).await.expect("a row");
    let batch = take_within(&*store, "worker", &["noop"], 10, |_| {}).await.expect("due");
    let taken = &batch.messages[0];
    assert_eq!((&taken.message.headers, &taken.fault), (&None, &None));
}
