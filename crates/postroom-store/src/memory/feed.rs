//! Inserting messages: what the trigger on INSERT does, in two steps, so that a producer's transaction
//! can stay open in between.

use super::parcels::{Parcel, ParcelKey};
use super::refused;
use super::tables::{Delivery, Fence, Row, Tables, fence, is_open};
use crate::remembered::DELIVERED_BEFORE;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Enqueued, Limits, Message, MessageId, NewMessage, PARCEL_MESSAGES, RawJson, StoreError,
    StoreErrorKind, StoreResult,
};
use std::collections::HashMap;
use uuid::Uuid;

/// What an insert has drawn numbers for, and nobody sees before it commits.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) rows: Vec<Row>,
    pub(super) parcels: Vec<(ParcelKey, Parcel)>,
    deliveries: Vec<(MessageId, Delivery)>,
    /// One answer per message that was given.
    pub(super) answers: Vec<Enqueued>,
}

impl Tables {
    /// Inserts messages in a transaction of its own: all of them, or none.
    pub(super) fn enqueue(
        &mut self,
        batch: &[NewMessage],
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<Enqueued>> {
        let staged = self.stage_new(batch, now)?;
        Ok(self.commit(staged))
    }

    /// Draws numbers for new messages.
    pub(super) fn stage_new(
        &mut self,
        batch: &[NewMessage],
        now: DateTime<Utc>,
    ) -> StoreResult<Staged> {
        let messages: StoreResult<Vec<Message>> =
            batch.iter().map(|new| message(new, now)).collect();
        self.stage(messages?, "PENDING", now)
    }

    /// The same for messages as they are. What is fresh shares parcels, up to 64 messages of a lane in
    /// each; everything else that is open gets a delivery. What the fence knows is a duplicate.
    pub(super) fn stage(
        &mut self,
        messages: Vec<Message>,
        status: &str,
        now: DateTime<Utc>,
    ) -> StoreResult<Staged> {
        for message in &messages {
            self.refuse_open_fence(message)?;
        }
        let mut staged = Staged::default();
        let mut fences: HashMap<Fence, MessageId> = HashMap::new();
        // The parcel of each lane that has room, by its place among those that were begun.
        let mut begun: HashMap<String, usize> = HashMap::new();
        // Applications set due times by clocks of their own.
        let soon = now + TimeDelta::seconds(1);
        for mut message in messages {
            let (fence, id) = (fence(&message), message.id.clone());
            if let Some(first) = self.id_by_fence.get(&fence).or_else(|| fences.get(&fence)) {
                staged.answers.push(Enqueued::Duplicate(first.clone()));
                continue;
            }
            fences.insert(fence, id.clone());
            // A number may be given by hand.
            if message.seq == 0 {
                message.seq = self.next_seq();
            }
            self.last_seq = self.last_seq.max(message.seq);
            let mut row = Row::new(message, status);
            if self.remembers(&row.message, now) {
                row.status = "SENT".to_owned();
                row.sent_at = Some(now);
                row.last_error = Some(DELIVERED_BEFORE.to_owned());
                row.settled = Some(self.fresh_token());
            }
            if row.status == "PENDING" && row.message.due_at <= soon {
                let place = begun.get(&row.message.integration).copied();
                match place.filter(|place| staged.parcels[*place].1.len() < PARCEL_MESSAGES) {
                    Some(place) => staged.parcels[place].1.push(id.clone()),
                    None => {
                        let lane = row.message.integration.clone();
                        begun.insert(lane.clone(), staged.parcels.len());
                        self.last_parcel += 1;
                        staged.parcels.push(((lane, self.last_parcel), vec![id.clone()]));
                    }
                }
            } else if is_open(&row.status) {
                staged.deliveries.push((id.clone(), Delivery::of(&row)));
            }
            staged.rows.push(row);
            staged.answers.push(Enqueued::New(id));
        }
        Ok(staged)
    }

    /// Shows everybody what was inserted.
    pub(super) fn commit(&mut self, staged: Staged) -> Vec<Enqueued> {
        let Staged { rows, parcels, deliveries, answers } = staged;
        for row in rows {
            self.id_by_fence.insert(fence(&row.message), row.message.id.clone());
            self.seq_by_id.insert(row.message.id.clone(), row.message.seq);
            self.messages.insert(row.message.seq, row);
        }
        for (key, parcel) in parcels {
            self.parcels.insert(key, parcel);
        }
        for (id, delivery) in deliveries {
            self.deliveries.insert(id, delivery);
        }
        answers
    }

    /// A database makes the second of two producers of one event wait until the first has committed or
    /// not. Nobody waits here: the second one may try again.
    pub(super) fn refuse_open_fence(&self, message: &Message) -> StoreResult<()> {
        if self.uncommitted.is_empty() {
            return Ok(());
        }
        let mut open = self.uncommitted.values().flat_map(|staged| &staged.rows);
        let wanted = fence(message);
        if open.any(|row| fence(&row.message) == wanted) {
            let context = "enqueueing: a transaction that is still open has inserted this event";
            return Err(StoreError::plain(StoreErrorKind::Conflict, context));
        }
        Ok(())
    }

    /// Whether a message that is there, or is not committed yet, has this number.
    pub(super) fn is_number_taken(&self, seq: i64) -> bool {
        let mut open = self.uncommitted.values().flat_map(|staged| &staged.rows);
        self.messages.contains_key(&seq) || open.any(|row| row.message.seq == seq)
    }

    fn next_seq(&self) -> i64 {
        let open = self.uncommitted.values().flat_map(|staged| &staged.rows);
        let open = open.map(|row| row.message.seq).max();
        let there = self.messages.last_key_value().map(|(seq, _)| *seq);
        self.last_seq.max(there.unwrap_or(0)).max(open.unwrap_or(0)) + 1
    }
}

/// A message as it is inserted, without its number.
pub(super) fn message(new: &NewMessage, now: DateTime<Utc>) -> StoreResult<Message> {
    new.validate(&Limits::default()).map_err(refused)?;
    Ok(Message {
        id: Uuid::now_v7().into(),
        seq: 0,
        event_id: new.event_id.clone(),
        stream_id: new.stream_id().to_owned(),
        integration: new.integration.clone(),
        event_type: new.event_type.clone(),
        payload: new.payload().cloned().unwrap_or_else(|| RawJson::trusted("null")),
        headers: new.headers_json().cloned(),
        tenant_id: new.tenant_id.clone(),
        user_id: new.user_id.clone(),
        correlation_id: new.correlation_id.clone(),
        causation_id: new.causation_id.clone(),
        source: new.source.clone(),
        ordering_key: new.ordering_key.clone(),
        schema_version: new.schema_version,
        copy: new.copy,
        occurred_at: new.occurred_at,
        due_at: new.due_at.unwrap_or(now),
        attempts: 0,
        max_attempts: u32::try_from(new.max_attempts).unwrap_or(1),
        created_at: now,
    })
}
