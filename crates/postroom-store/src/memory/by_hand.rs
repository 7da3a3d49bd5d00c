//! What people do to an outbox by plain SQL, for stores that have no SQL.

use super::tables::Row;
use super::{MemoryStore, refused};
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{Enqueued, Message, MessageId, RawJson, StoreResult};
use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// Changes by hand, under the rules that the tables' constraints and triggers enforce elsewhere.
pub struct ByHand<'a>(pub(super) &'a MemoryStore);

/// A whole row, as somebody read it.
#[derive(Clone)]
pub struct WholeRow(Row);

/// How much each table beside the messages has.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Messages that a delivery or a parcel names, without those that were recorded as SENT and whose
    /// parcel goes with the rest of its claim.
    pub deliveries: usize,
    /// Parcels.
    pub parcels: usize,
    /// Changes by hand that are still to be followed.
    pub pending_edits: usize,
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
    pub fn insert(&self, columns: &[(&str, &str)]) -> StoreResult<MessageId> {
        let now = self.0.clock.now();
        let mut given: HashMap<&str, &str> = columns.iter().copied().collect();
        let status = given.remove("status").unwrap_or("PENDING");
        if status == "CLAIMED" {
            return Err(refused("claims live in the delivery"));
        }
        let message = Message {
            id: Uuid::now_v7().into(),
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
        if tables.is_number_taken(message.seq) {
            return Err(refused("the number is taken"));
        }
        let staged = tables.stage(vec![message], status, now)?;
        let inserted = tables.commit(staged).into_iter().find(|answer| answer.is_new());
        drop(tables);
        self.0.written.signal();
        inserted.map(Enqueued::into_id).ok_or_else(|| refused("the fence knows it"))
    }

    /// `UPDATE … SET status = …`.
    ///
    /// # Errors
    /// CLAIMED is refused: claims live in the delivery.
    pub fn set_status(&self, id: &MessageId, status: &str) -> StoreResult<()> {
        if status == "CLAIMED" {
            return Err(refused("claims live in the delivery"));
        }
        self.update(id, |row| status.clone_into(&mut row.status));
        Ok(())
    }

    /// `UPDATE … SET due_at = …`.
    pub fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) {
        self.update(id, |row| row.message.due_at = due_at);
    }

    /// `UPDATE … SET integration_type = …`
    pub fn set_integration(&self, id: &MessageId, integration: &str) {
        self.update(id, |row| row.message.integration = integration.to_owned());
    }

    /// `UPDATE … SET column = …` while triggers are off.
    ///
    /// # Errors
    /// When it is no column that a trigger watches, or no value of it.
    pub fn set_unseen(&self, id: &MessageId, column: &str, value: &str) -> StoreResult<()> {
        let mut given = HashMap::from([(column, value)]);
        let due_at = parsed(&mut given, "due_at")?;
        let (status, integration) =
            (text(&mut given, "status"), text(&mut given, "integration_type"));
        if !given.is_empty() {
            return Err(refused(format!("no trigger watches {column}")));
        }
        let mut tables = self.0.lock();
        let Some(row) = tables.row_mut(id) else { return Ok(()) };
        row.status = status.unwrap_or_else(|| row.status.clone());
        row.message.integration = integration.unwrap_or_else(|| row.message.integration.clone());
        row.message.due_at = due_at.unwrap_or(row.message.due_at);
        Ok(())
    }

    /// `UPDATE … SET created_at = …, sent_at = …, updated_at = …`: the message becomes older.
    pub fn make_older(&self, id: &MessageId, by: Duration) {
        let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
        self.update(id, |row| {
            row.message.created_at -= by;
            row.sent_at = row.sent_at.map(|at| at - by);
            row.updated_at -= by;
        });
    }

    /// `DELETE FROM integration_outbox WHERE id = …`; what names it stays behind.
    pub fn delete(&self, id: &MessageId) {
        let mut tables = self.0.lock();
        if let Some(seq) = tables.seq_of(id) {
            tables.remove(seq);
        }
    }

    /// `SELECT * FROM integration_outbox WHERE id = …`.
    #[must_use]
    pub fn read(&self, id: &MessageId) -> Option<WholeRow> {
        let tables = self.0.lock();
        tables.row(id).cloned().map(WholeRow)
    }

    /// Writes every column of a row that was read before.
    pub fn save(&self, WholeRow(stale): WholeRow) {
        let id = stale.message.id.clone();
        self.update(&id, |row| *row = stale);
    }

    /// `TRUNCATE integration_outbox RESTART IDENTITY`. Whoever empties the table means its ledger too;
    /// claims stay behind.
    pub fn truncate(&self) {
        let mut tables = self.0.lock();
        let all: Vec<i64> = tables.messages.keys().copied().collect();
        for seq in all {
            tables.remove(seq);
        }
        tables.empty_ledger();
        tables.restart_numbers();
    }

    /// Sets the next number back to the first.
    pub fn restart_numbers(&self) {
        self.0.lock().restart_numbers();
    }

    /// `DELETE FROM delivery`, and the same for parcels and pending edits: what a restore with triggers
    /// turned off leaves.
    pub fn delete_deliveries(&self) {
        self.0.lock().empty_ledger();
    }

    /// `INSERT INTO parcel`: what a restore of the ledger brings, whatever else names the messages.
    pub fn insert_parcel(&self, integration: &str, ids: &[MessageId]) {
        let mut tables = self.0.lock();
        tables.last_parcel += 1;
        let key = (integration.to_owned(), tables.last_parcel);
        tables.parcels.insert(key, ids.to_vec());
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
        let is_over = |id: &MessageId| {
            let row = tables.row(id);
            row.is_some_and(|row| row.status == "SENT" && row.settled.is_some())
        };
        let delivered = tables.deliveries.iter().map(|(id, _)| id);
        let named: HashSet<&MessageId> = delivered.chain(tables.parcels.named()).collect();
        Counts {
            deliveries: named.iter().filter(|id| !is_over(id)).count(),
            parcels: tables.parcels.iter().count(),
            pending_edits: tables.pending_edits.len(),
            claims: tables.claims.len(),
            attempts: tables.attempts.values().map(Vec::len).sum(),
        }
    }

    /// Updates a row. The trigger fires when status, due time or integration have changed.
    fn update(&self, id: &MessageId, change: impl FnOnce(&mut Row)) {
        let mut tables = self.0.lock();
        let Some(row) = tables.row_mut(id) else { return };
        let before = row.clone();
        change(row);
        let row = row.clone();
        let is_same = (&before.status, before.message.due_at, &before.message.integration)
            == (&row.status, row.message.due_at, &row.message.integration);
        if !is_same {
            tables.follow(&before, &row);
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
