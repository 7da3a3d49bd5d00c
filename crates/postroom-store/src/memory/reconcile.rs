//! Making messages and the ledger agree.

use super::parcels::ParcelKey;
use super::tables::{Delivery, Row, Tables, is_open, unused};
use chrono::{DateTime, Utc};
use postroom_core::{Finding, MessageId, Reconciled, Token};
use std::collections::HashSet;

impl Tables {
    pub(super) fn reconcile(&mut self, now: DateTime<Utc>) -> Reconciled {
        let doubled = self.doubled();
        for id in &doubled {
            self.unpack_naming(id);
        }
        let stray = self.stray();
        for id in &stray {
            let row = self.row(id).cloned();
            if let Some(mut delivery) = self.deliveries.get_mut(id) {
                delivery.claim = None;
                if let Some(row) = row {
                    delivery.follow(&row);
                }
            }
        }
        let unfed = self.unfed();
        for row in &unfed {
            let delivery = Delivery { dispatch: unused(now), ..Delivery::of(row) };
            self.deliveries.insert(row.message.id.clone(), delivery);
        }
        let unlike = self.unlike();
        for id in &unlike {
            let row = self.row(id).cloned();
            if let (Some(mut delivery), Some(row)) = (self.deliveries.get_mut(id), row) {
                delivery.follow(&row);
                delivery.since = row.message.due_at;
            }
        }
        let (closed, emptied) = (self.closed(), self.emptied());
        for id in &closed {
            self.deliveries.remove(id);
        }
        for key in &emptied {
            self.parcels.remove(key);
        }
        Reconciled {
            made: unfed.len() as u64,
            removed: (closed.len() + emptied.len()) as u64,
            freed: stray.len() as u64,
            followed: unlike.len() as u64,
            numbered: doubled.len() as u64,
            ..Reconciled::default()
        }
    }

    /// What reconciliation would mend. A change by hand that is still to be followed is none of it.
    pub(super) fn disagreements(&self) -> Vec<Finding> {
        let edited: HashSet<&MessageId> = self.pending_edits.iter().map(|edit| &edit.id).collect();
        let unfed = self.unfed().iter().filter(|row| !edited.contains(&row.message.id)).count();
        Finding::disagreements(&Reconciled {
            made: unfed as u64,
            removed: (self.closed().len() + self.emptied().len()) as u64,
            freed: self.stray().len() as u64,
            followed: self.unlike().len() as u64,
            numbered: self.doubled().len() as u64,
            ..Reconciled::default()
        })
    }

    fn is_open(&self, id: &MessageId) -> bool {
        self.row(id).is_some_and(|row| is_open(&row.status))
    }

    /// Open messages that neither a parcel nor a delivery names.
    fn unfed(&self) -> Vec<Row> {
        let open = self.messages.values().filter(|row| is_open(&row.status));
        let is_named =
            |id: &MessageId| self.deliveries.contains(id) || !self.parcels.naming(id).is_empty();
        open.filter(|row| !is_named(&row.message.id)).cloned().collect()
    }

    /// Messages that two parcels name, or a parcel beside a delivery, where nobody holds one of the
    /// parcels.
    fn doubled(&self) -> Vec<MessageId> {
        let claimed = self.claimed();
        let is_doubled = |id: &&MessageId| {
            let keys = self.parcels.naming(id);
            (keys.len() > 1 || self.deliveries.contains(id))
                && keys.iter().any(|key| !claimed.contains(key))
        };
        self.parcels.named().filter(is_doubled).cloned().collect()
    }

    /// Deliveries under a claim that does not exist.
    fn stray(&self) -> Vec<MessageId> {
        let is_stray = |token: Token| !self.claims.contains_key(&token);
        let stray = self.deliveries.iter().filter(|(_, one)| one.claim.is_some_and(is_stray));
        stray.map(|(id, _)| id.clone()).collect()
    }

    /// Deliveries that nobody holds and that say something else than their open message.
    fn unlike(&self) -> Vec<MessageId> {
        let is_unlike = |(id, delivery): &(&MessageId, &Delivery)| {
            let row = self.row(id);
            delivery.claim.is_none() && row.is_some_and(|row| !delivery.agrees(row))
        };
        self.deliveries.iter().filter(is_unlike).map(|(id, _)| id.clone()).collect()
    }

    /// Deliveries that nobody holds and whose message is not open.
    fn closed(&self) -> Vec<MessageId> {
        let free = self.deliveries.iter().filter(|(_, one)| one.claim.is_none());
        free.map(|(id, _)| id).filter(|id| !self.is_open(id)).cloned().collect()
    }

    /// Parcels that nobody holds and none of whose messages exists.
    fn emptied(&self) -> Vec<ParcelKey> {
        let claimed = self.claimed();
        let free = self.parcels.iter().filter(|(key, _)| !claimed.contains(key));
        free.filter(|(_, parcel)| parcel.iter().all(|id| self.row(id).is_none()))
            .map(|(key, _)| key)
            .collect()
    }
}
