//! What people do to an outbox by plain SQL, for stores that have no SQL.

use super::tables::Row;
use super::{MemoryStore, refused};
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{Message, RawJson, StoreResult};
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// Changes by hand, under the rules that the tables' constraints and triggers enforce elsewhere.
pub struct ByHand<'a>(pub(super) &'a MemoryStore);

/// A whole row, as somebody read it.
#[derive(Clone)]
pub struct WholeRow(Row);

/// How many rows each table beside the messages has.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Deliveries.
    pub deliveries: usize,
    /// Claims.
    pub claims: usize,
    /// Failed attempts, over all messages.
    pub attempts: usize,
}

impl ByHand<'_> {
    /// `INSERT INTO integration_outbox (column, …) VALUES (text, …)`.
    ///
    /// # Errors
    /// What a constraint refuses.
    pub fn insert(&self, columns: &[(&str, &str)]) -> StoreResult<Uuid> {
        let now = self.0.clock.now();
        let mut given: HashMap<&str, &str> = columns.iter().copied().collect();
        let status = given.remove("status").unwrap_or("PENDING");
        if status == "CLAIMED" {
            return Err(refused("claims live in the delivery"));
        }
        let message = Message {
            id: Uuid::now_v7(),
            seq: parsed(&mut given, "seq")?.unwrap_or(0),
            event_id: required(&mut given, "source_event_id")?,
            stream_id: required(&mut given, "source_stream_id")?,
            integration: required(&mut given, "integration_type")?,
            event_type: required(&mut given, "event_type")?,
            payload: json(required(&mut given, "payload")?)?,
            headers: text(&mut given, "headers").map(json).transpose()?,
            tenant_id: text(&mut given, "tenant_id"),
            user_id: text(&mut given, "user_id"),
            correlation_id: text(&mut given, "correlation_id"),
            causation_id: None,
            source: None,
            ordering_key: None,
            schema_version: 1,
            copy: 0,
            occurred_at: None,
            due_at: parsed::<DateTime<Utc>>(&mut given, "due_at")?.unwrap_or(now),
            attempts: parsed(&mut given, "attempts")?.unwrap_or(0),
            max_attempts: parsed(&mut given, "max_attempts")?.unwrap_or(10),
            created_at: now,
        };
        if message.max_attempts == 0 {
            return Err(refused("max_attempts must be at least 1"));
        }
        if let Some(unknown) = given.keys().next() {
            return Err(refused(format!("there is no column {unknown}")));
        }
        let mut tables = self.0.lock();
        if tables.messages.contains_key(&message.seq) {
            return Err(refused("the number is taken"));
        }
        let enqueued = tables.insert(message, status);
        drop(tables);
        self.0.written.signal();
        if enqueued.is_new() { Ok(enqueued.id()) } else { Err(refused("the fence knows it")) }
    }

    /// `UPDATE … SET status = …`.
    ///
    /// # Errors
    /// CLAIMED is refused: claims live in the delivery.
    pub fn set_status(&self, id: Uuid, status: &str) -> StoreResult<()> {
        if status == "CLAIMED" {
            return Err(refused("claims live in the delivery"));
        }
        self.update(id, |row| status.clone_into(&mut row.status));
        Ok(())
    }

    /// `UPDATE … SET due_at = …`.
    pub fn set_due_at(&self, id: Uuid, due_at: DateTime<Utc>) {
        self.update(id, |row| row.message.due_at = due_at);
    }

    /// `UPDATE … SET integration_type = …`
    pub fn set_integration(&self, id: Uuid, integration: &str) {
        self.update(id, |row| row.message.integration = integration.to_owned());
    }

    /// `UPDATE … SET column = …` while triggers are off.
    ///
    /// # Errors
    /// When it is no column that a trigger watches, or no value of it.
    pub fn set_unseen(&self, id: Uuid, column: &str, value: &str) -> StoreResult<()> {
        let mut given = HashMap::from([(column, value)]);
        let due_at = parsed(&mut given, "due_at")?;
        let (status, integration) =
            (text(&mut given, "status"), text(&mut given, "integration_type"));
        if !given.is_empty() {
            return Err(refused(format!("no trigger watches {column}")));
        }
        let mut tables = self.0.lock();
        let Some(seq) = tables.seq_of(id) else { return Ok(()) };
        let Some(row) = tables.messages.get_mut(&seq) else { return Ok(()) };
        row.status = status.unwrap_or_else(|| row.status.clone());
        row.message.integration = integration.unwrap_or_else(|| row.message.integration.clone());
        row.message.due_at = due_at.unwrap_or(row.message.due_at);
        Ok(())
    }

    /// `UPDATE … SET created_at = …, sent_at = …, updated_at = …`: the message becomes older.
    pub fn make_older(&self, id: Uuid, by: Duration) {
        let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
        self.update(id, |row| {
            row.message.created_at -= by;
            row.sent_at = row.sent_at.map(|at| at - by);
            row.updated_at -= by;
        });
    }

    /// `DELETE FROM integration_outbox WHERE id = …`; the delivery stays behind.
    pub fn delete(&self, id: Uuid) {
        let mut tables = self.0.lock();
        if let Some(seq) = tables.seq_of(id) {
            tables.remove(seq);
        }
    }

    /// `SELECT * FROM integration_outbox WHERE id = …`.
    #[must_use]
    pub fn read(&self, id: Uuid) -> Option<WholeRow> {
        let tables = self.0.lock();
        tables.messages.get(&tables.seq_of(id)?).cloned().map(WholeRow)
    }

    /// Writes every column of a row that was read before.
    pub fn save(&self, WholeRow(stale): WholeRow) {
        self.update(stale.message.id, |row| *row = stale);
    }

    /// `TRUNCATE integration_outbox RESTART IDENTITY`; deliveries and claims stay behind.
    pub fn truncate(&self) {
        let mut tables = self.0.lock();
        let all: Vec<i64> = tables.messages.keys().copied().collect();
        for seq in all {
            tables.remove(seq);
        }
        tables.restart_numbers();
    }

    /// Sets the next number back to the first.
    pub fn restart_numbers(&self) {
        self.0.lock().restart_numbers();
    }

    /// `DELETE FROM delivery`: what a restore with triggers turned off leaves.
    pub fn delete_deliveries(&self) {
        self.0.lock().deliveries.clear();
    }

    /// `DELETE FROM claim`.
    pub fn delete_claims(&self) {
        self.0.lock().claims.clear();
    }

    /// Moves the end of every relay's row, and so of every claim, into the past, as if all
    /// heartbeats had ended.
    pub fn expire_claims(&self) {
        let now = self.0.clock.now();
        for relay in self.0.lock().relays.values_mut() {
            relay.until = now - TimeDelta::seconds(1);
        }
    }

    /// How much there is beside the messages.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let tables = self.0.lock();
        Counts {
            deliveries: tables.deliveries.len(),
            claims: tables.claims.len(),
            attempts: tables.attempts.values().map(Vec::len).sum(),
        }
    }

    /// Updates a row. The trigger fires when status or due time have changed.
    fn update(&self, id: Uuid, change: impl FnOnce(&mut Row)) {
        let mut tables = self.0.lock();
        let Some(seq) = tables.seq_of(id) else { return };
        let Some(row) = tables.messages.get_mut(&seq) else { return };
        let watched =
            |row: &Row| (row.status.clone(), row.message.due_at, row.message.integration.clone());
        let before = watched(row);
        change(row);
        let row = row.clone();
        if before != watched(&row) {
            tables.follow(&row, self.0.clock.now());
        }
        drop(tables);
        self.0.written.signal();
    }
}

fn text(given: &mut HashMap<&str, &str>, column: &str) -> Option<String> {
    given.remove(column).map(str::to_owned)
}

fn required(given: &mut HashMap<&str, &str>, column: &str) -> StoreResult<String> {
    text(given, column).ok_or_else(|| refused(format!("{column} must not be null")))
}

fn parsed<T: FromStr>(given: &mut HashMap<&str, &str>, column: &str) -> StoreResult<Option<T>> {
    given
        .remove(column)
        .map(|value| value.parse().map_err(|_| refused(format!("{column} is no valid value"))))
        .transpose()
}

fn json(text: String) -> StoreResult<RawJson> {
    RawJson::check(text.into_bytes()).map_err(refused)
}
