//! Delivering as a lane does, and keeping what the sink reports.

use chrono::Utc;
use postroom_core::{Message, Outcome, OutcomeReceiver, RawJson, Report, Sink};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// What a sink reported about one batch.
#[derive(Debug)]
pub struct Delivery {
    outcomes: Mutex<Vec<Option<Outcome>>>,
}

impl Delivery {
    /// The outcome of each message; what was not reported is a retry, as in a relay.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let unreported = || Outcome::retry("the sink reported no outcome");
        outcomes.iter().map(|outcome| outcome.clone().unwrap_or_else(unreported)).collect()
    }
}

impl OutcomeReceiver for Delivery {
    fn outcome(&self, index: usize, outcome: Outcome) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the first word on a message counts.
        outcomes[index].get_or_insert(outcome);
    }
}

/// Delivers a batch and gives up after `timeout`, as a lane does.
pub async fn deliver(sink: &dyn Sink, batch: &[Message], timeout: Duration) -> Delivery {
    let delivery = Delivery { outcomes: Mutex::new(vec![None; batch.len()]) };
    let mut begun = 0;
    let all = async {
        for part in batch.chunks(sink.batch_max().clamp(1, batch.len().max(1))) {
            sink.deliver(part, &Report::new(&delivery).part(begun)).await;
            begun += part.len();
        }
    };
    let _ = tokio::time::timeout(timeout, all).await;
    delivery
}

/// Delivers a batch with time enough.
pub async fn deliver_all(sink: &dyn Sink, batch: &[Message]) -> Vec<Outcome> {
    deliver(sink, batch, Duration::from_secs(30)).await.outcomes()
}

/// A message with a little of everything.
#[must_use]
pub fn message(event_id: &str) -> Message {
    let now = Utc::now();
    Message {
        id: Uuid::now_v7().into(),
        seq: 1,
        event_id: event_id.to_owned(),
        stream_id: "order-1".to_owned(),
        integration: "test:contract".to_owned(),
        event_type: "order.placed.v1".to_owned(),
        payload: RawJson::trusted(format!("{{\"event\": \"{event_id}\", \"sum\": 12.5}}")),
        headers: Some(RawJson::trusted(
            r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","shop":"eu"}"#,
        )),
        tenant_id: Some("acme".to_owned()),
        user_id: Some("u-1".to_owned()),
        correlation_id: Some("c-1".to_owned()),
        causation_id: Some("k-1".to_owned()),
        source: Some("shop".to_owned()),
        ordering_key: None,
        schema_version: 3,
        copy: 0,
        occurred_at: Some(now),
        due_at: now,
        attempts: 4,
        max_attempts: 10,
        created_at: now,
    }
}
