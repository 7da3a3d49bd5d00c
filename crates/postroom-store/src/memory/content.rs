//! Reading what was taken.

use super::parcels::ParcelKey;
use super::tables::{Delivery, Row, Tables, is_open};
use crate::content_fault::drop_null_headers;
use chrono::{DateTime, Utc};
use postroom_core::{ContentFault, MessageId, RawJson, Take, Taken, Token};

/// A message as a relay gets it. One without a delivery comes out of a parcel: it was neither rescued
/// nor dispatched.
pub(super) fn read(row: &Row, delivery: Option<&Delivery>, take: &Take<'_>) -> Taken {
    let mut message = row.message.clone();
    drop_null_headers(&mut message);
    let mut fault = None;
    if message.headers.as_ref().is_some_and(|headers| !headers.is_object()) {
        fault = Some(ContentFault::HeadersNoObject);
    }
    if message.headers.as_ref().is_some_and(|headers| headers.len() > take.headers_limit()) {
        message.headers = None;
        fault = Some(ContentFault::HeadersTooLarge { limit: take.headers_limit() });
    }
    if message.payload.len() > take.payload_limit {
        message.payload = RawJson::trusted("null");
        fault = Some(ContentFault::TooLarge { limit: take.payload_limit });
    }
    let rescues = delivery.map_or(0, |delivery| delivery.rescues);
    let dispatch = delivery.map_or(0, |delivery| delivery.dispatch).saturating_add(1);
    Taken { message, rescues, dispatch, fault }
}

impl Tables {
    /// Which messages of a parcel are to be delivered out of it: not those that are closed or gone, due
    /// later, of another integration by now, or that have a delivery.
    pub(super) fn deliverable(&self, key: &ParcelKey, now: DateTime<Utc>) -> Vec<MessageId> {
        let is_here = |row: &Row| {
            row.is_deliverable()
                && row.message.due_at <= now
                && row.message.integration == key.0
                && !self.deliveries.contains(&row.message.id)
        };
        let named = self.parcels.get(key).into_iter().flatten();
        named.filter(|id| self.row(id).is_some_and(is_here)).cloned().collect()
    }

    /// Of a parcel that is taken, gives what is not delivered out of it a delivery that says what the
    /// message says. What was closed by hand is over under this claim: whoever opens it again meets no
    /// attempt under way.
    pub(super) fn set_aside(&mut self, key: &ParcelKey, fresh: &[MessageId], token: Token) {
        let named = self.parcels.get(key).into_iter().flatten();
        let left_out: Vec<MessageId> = named.filter(|id| !fresh.contains(id)).cloned().collect();
        for id in left_out {
            let has_delivery = self.deliveries.contains(&id);
            let Some(row) = self.row_mut(&id) else { continue };
            if !is_open(&row.status) {
                row.settled = Some(token);
            } else if !has_delivery {
                let delivery = Delivery::of(row);
                self.deliveries.insert(id, delivery);
            }
        }
    }
}
