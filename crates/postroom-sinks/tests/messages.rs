//! Messages to deliver, and a place for their outcomes.

use chrono::DateTime;
use postroom_core::{Message, Outcome, OutcomeReceiver, RawJson, Report, Sink};
use std::sync::Mutex;
use uuid::Uuid;

pub(crate) fn message(event_id: &str) -> Message {
    Message {
        id: Uuid::now_v7().into(),
        seq: 1,
        event_id: event_id.to_owned(),
        stream_id: "order-1".to_owned(),
        integration: "test:x".to_owned(),
        event_type: "order.placed.v1".to_owned(),
        payload: RawJson::trusted(format!("{{\"id\":\"{event_id}\"}}")),
        headers: None,
        tenant_id: None,
        user_id: None,
        correlation_id: None,
        causation_id: None,
        source: None,
        ordering_key: None,
        schema_version: 1,
        copy: 0,
        occurred_at: None,
        due_at: DateTime::UNIX_EPOCH,
        attempts: 0,
        max_attempts: 10,
        created_at: DateTime::UNIX_EPOCH,
    }
}

#[derive(Default)]
pub(crate) struct Outcomes(pub Mutex<Vec<(usize, Outcome)>>);

impl OutcomeReceiver for Outcomes {
    fn outcome(&self, index: usize, outcome: Outcome) {
        self.0.lock().unwrap().push((index, outcome));
    }
}

/// Delivers a batch and returns one outcome per message, by index.
pub(crate) async fn deliver(sink: &dyn Sink, batch: &[Message]) -> Vec<Outcome> {
    let outcomes = Outcomes::default();
    sink.deliver(batch, &Report::new(&outcomes)).await;
    let mut outcomes = outcomes.0.into_inner().unwrap();
    outcomes.sort_by_key(|(index, _)| *index);
    assert_eq!(
        outcomes.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
        (0..batch.len()).collect::<Vec<_>>(),
        "one outcome per message"
    );
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

pub(crate) async fn deliver_one(sink: &dyn Sink, message: Message) -> Outcome {
    deliver(sink, &[message]).await.remove(0)
}
