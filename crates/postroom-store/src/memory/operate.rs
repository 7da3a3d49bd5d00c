//! What operators do to messages.

use super::MemoryStore;
use super::tables::{Delivery, Row, Tables, is_open};
use crate::prunable::by_status;
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Action, ActionId, CANCELLED, Enqueued, Key, Message, MessageId, NewAction, Operate,
    REPLAY_HEADER, RawJson, Status, StoreResult, Token,
};
use serde_json::{Map, Value};
use std::time::Duration;
use uuid::Uuid;

#[async_trait]
impl Operate for MemoryStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        let mut tables = self.lock();
        let id = tables.actions.last().map_or(1, |last| last.id + 1);
        tables.actions.push(Action {
            id,
            at: self.clock.now(),
            actor: action.actor.to_owned(),
            operation: action.operation.as_str().to_owned(),
            target: action.target.to_owned(),
            messages: 0,
        });
        Ok(ActionId(id))
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        let tables = self.lock();
        let newest_first = tables.actions.iter().rev();
        let wanted = newest_first.filter(|action| before.is_none_or(|before| action.id < before.0));
        Ok(wanted.take(limit).cloned().collect())
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        self.lock().count(action, usize::try_from(messages).unwrap_or(usize::MAX));
        Ok(())
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        let now = self.clock.now();
        Ok(self.change(action, keys, |row| {
            if row.status != "DEAD" {
                return false;
            }
            row.status = "PENDING".to_owned();
            row.message.attempts = 0;
            row.message.due_at = now;
            true
        }))
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<MessageId>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let mut keys = keys.to_vec();
        keys.sort_unstable_by_key(|key| key.seq);
        keys.dedup();
        let mut again: Vec<Message> = Vec::new();
        for key in keys {
            let row = tables.messages.get(&key.seq).filter(|row| row.is(&key));
            let Some(row) = row.filter(|row| tables.record(row).status == "SENT") else { continue };
            again.push(tables.again(&row.message, &again, fresh_ids, now));
        }
        let staged = tables.stage(again, "PENDING", now)?;
        let made: Vec<MessageId> =
            tables.commit(staged).into_iter().map(Enqueued::into_id).collect();
        tables.count(action, made.len());
        drop(tables);
        self.written.signal();
        Ok(made)
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let mut released = 0;
        for key in keys {
            released += usize::from(tables.take_back(key, now));
        }
        tables.count(action, released);
        drop(tables);
        self.written.signal();
        Ok(released as u64)
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        Ok(self.change(action, keys, |row| {
            if !matches!(row.status.as_str(), "PENDING" | "FAILED") {
                return false;
            }
            row.status = "DEAD".to_owned();
            row.last_error = Some(CANCELLED.to_owned());
            true
        }))
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let mut old = self.old(status, older_than)?;
        old.truncate(limit);
        let mut tables = self.lock();
        for row in
            old.iter().filter_map(|seq| tables.messages.get(seq).cloned()).collect::<Vec<_>>()
        {
            tables.deliveries.remove(&row.message.id);
            if status == Status::Sent {
                tables.prune(row.message.seq, self.history.remember_events);
            } else {
                tables.remove(row.message.seq);
            }
        }
        tables.count(action, old.len());
        Ok(old.len() as u64)
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        Ok(self.old(status, older_than)?.len() as u64)
    }
}

impl MemoryStore {
    /// Changes messages that no relay holds, as far as `change` wants to.
    fn change(&self, action: ActionId, keys: &[Key], change: impl Fn(&mut Row) -> bool) -> u64 {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.follow_edits(None, now);
        let mut changed = 0;
        for key in keys {
            // What is changed is not fresh any more.
            tables.unpack_naming(&key.id);
            let Tables { messages, deliveries, .. } = &mut *tables;
            let Some(row) = messages.get_mut(&key.seq).filter(|row| row.is(key)) else { continue };
            let Some(mut delivery) = deliveries.get_mut(&key.id) else { continue };
            if delivery.claim.is_some() || !change(row) {
                continue;
            }
            row.touch(now);
            delivery.rescues = 0;
            delivery.follow(row);
            delivery.since = row.message.due_at;
            changed += 1;
        }
        tables.count(action, changed);
        drop(tables);
        self.written.signal();
        changed as u64
    }

    /// The SENT or DEAD messages that became so more than `older_than` ago.
    pub(super) fn old(&self, status: Status, older_than: Duration) -> StoreResult<Vec<i64>> {
        let since = by_status::<fn(&Row) -> DateTime<Utc>>(
            status,
            |row| row.sent_at.unwrap_or(row.message.created_at),
            |row| row.updated_at,
        )?;
        let age = TimeDelta::from_std(older_than).unwrap_or(TimeDelta::MAX);
        let Some(before) = self.clock.now().checked_sub_signed(age) else { return Ok(Vec::new()) };
        let tables = self.lock();
        let view = tables.view();
        let rows = tables
            .messages
            .iter()
            .filter(|(_, row)| view.record(row).status == status.as_str() && since(row) < before);
        Ok(rows.map(|(seq, _)| *seq).collect())
    }
}

impl Row {
    /// Whether this is the message that was meant, and not another that has its number by now.
    fn is(&self, key: &Key) -> bool {
        self.message.id == key.id
    }

    /// A write of the store's own.
    fn touch(&mut self, now: DateTime<Utc>) {
        self.updated_at = now;
        self.settled = Some(Token::random());
    }
}

impl Tables {
    fn count(&mut self, action: ActionId, messages: usize) {
        if let Some(action) = self.actions.iter_mut().find(|one| one.id == action.0) {
            action.messages += messages as u64;
        }
    }

    /// Takes a message from the relay that holds it, due at once. Out of a parcel it gets a delivery, which
    /// outranks the parcel: the rest of the batch stays held. What was changed by hand meanwhile is
    /// followed. False when nobody holds it.
    fn take_back(&mut self, key: &Key, now: DateTime<Utc>) -> bool {
        let row = self.messages.get(&key.seq).filter(|row| row.is(key));
        let Some(mut row) = row.filter(|row| self.holder(row).is_some()).cloned() else {
            return false;
        };
        if !self.deliveries.contains(&key.id) {
            // Closed by hand: its claim's end finds that out.
            if !is_open(&row.status) {
                return false;
            }
            self.deliveries.insert(key.id.clone(), Delivery::of(&row));
        }
        if row.is_deliverable() {
            row.message.due_at = now;
            row.touch(now);
        }
        if let Some(mut delivery) = self.deliveries.get_mut(&key.id) {
            delivery.claim = None;
            delivery.follow(&row);
        }
        self.messages.insert(key.seq, row);
        true
    }

    /// The message to be sent again, beside others that are.
    fn again(
        &self,
        sent: &Message,
        beside: &[Message],
        fresh_ids: bool,
        now: DateTime<Utc>,
    ) -> Message {
        let event_id = if fresh_ids { Uuid::now_v7().to_string() } else { sent.event_id.clone() };
        let same = |other: &&Message| {
            (&other.event_id, &other.stream_id, &other.integration)
                == (&sent.event_id, &sent.stream_id, &sent.integration)
        };
        let there = self.messages.values().map(|row| &row.message);
        let last = there.chain(beside).filter(same).map(|message| message.copy).max();
        let headers =
            sent.headers.as_ref().and_then(|json| serde_json::from_str(json.as_str()).ok());
        let mut headers: Map<String, Value> = headers.unwrap_or_default();
        headers.insert(REPLAY_HEADER.to_owned(), sent.id.to_string().into());
        Message {
            id: Uuid::now_v7().into(),
            seq: 0,
            event_id,
            copy: if fresh_ids { 0 } else { last.map_or(0, |copy| copy + 1) },
            headers: Some(RawJson::trusted(Value::Object(headers).to_string())),
            due_at: now,
            attempts: 0,
            created_at: now,
            ..sent.clone()
        }
    }
}
