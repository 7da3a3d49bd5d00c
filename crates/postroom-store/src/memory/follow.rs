//! Following changes by hand: what the trigger on UPDATE does, and what it leaves to whoever takes in
//! the lane.

use super::tables::{Delivery, Row, Tables, is_open, unused};
use chrono::{DateTime, Utc};
use postroom_core::{MessageId, Quota};

/// A change by hand of a message without a delivery. It is in a parcel, or was closed: whoever takes
/// in its lane follows it, once no attempt is under way.
pub(super) struct PendingEdit {
    /// The lane that the message was in before the change.
    lane: String,
    pub(super) id: MessageId,
}

impl Tables {
    /// The trigger: a delivery follows at once, unless it is claimed. Then the attempt under way decides
    /// for itself, and looks at the message when it ends.
    pub(super) fn follow(&mut self, before: &Row, row: &Row) {
        let id = &row.message.id;
        match self.deliveries.get(id) {
            Some(delivery) if delivery.claim.is_some() => {}
            Some(delivery) => {
                let dispatch = delivery.dispatch;
                self.say(row, dispatch);
            }
            None => {
                let lane = before.message.integration.clone();
                self.pending_edits.push(PendingEdit { lane, id: id.clone() });
            }
        }
    }

    /// Follows pending edits of messages that left these lanes, stay there or go there; or all of
    /// them. Those of messages that somebody holds in a parcel stay until the attempt is over.
    pub(super) fn follow_edits(&mut self, quotas: Option<&[Quota]>, now: DateTime<Utc>) {
        let mut later = Vec::new();
        for edit in std::mem::take(&mut self.pending_edits) {
            let row = self.row(&edit.id);
            let goes_to = row.map(|row| row.message.integration.as_str());
            let concerns = |quota: &Quota| {
                quota.integration == edit.lane || goes_to == Some(quota.integration.as_str())
            };
            let is_wanted = quotas.is_none_or(|quotas| quotas.iter().any(concerns));
            let is_held = || row.is_some_and(|row| self.holder_in_parcel(row).is_some());
            if !is_wanted || is_held() {
                later.push(edit);
            } else {
                self.follow_edit(&edit.id, now);
            }
        }
        self.pending_edits = later;
    }

    /// Makes the ledger say what a message says that nobody holds.
    fn follow_edit(&mut self, id: &MessageId, now: DateTime<Utc>) {
        self.unpack_naming(id);
        // One without a delivery may have had any number of dispatches.
        let dispatch = match self.deliveries.get(id) {
            Some(delivery) if delivery.claim.is_some() => return,
            Some(delivery) => delivery.dispatch,
            None => unused(now),
        };
        match self.row(id).cloned() {
            Some(row) => self.say(&row, dispatch),
            None => self.deliveries.remove(id),
        }
    }

    /// Gives a message the delivery that it asks for, or none.
    fn say(&mut self, row: &Row, dispatch: u32) {
        let id = &row.message.id;
        if is_open(&row.status) {
            self.deliveries.insert(id.clone(), Delivery { dispatch, ..Delivery::of(row) });
        } else {
            self.deliveries.remove(id);
        }
    }
}
