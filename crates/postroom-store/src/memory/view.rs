//! Messages as the view `messages` of a database shows them.

use super::tables::{Row, Tables};
use postroom_core::{MessageId, Record, Token};
use std::collections::HashMap;

/// The tables, for a look at many messages: what is in flight out of parcels is found once.
pub(super) struct View<'a> {
    tables: &'a Tables,
    in_flight: HashMap<MessageId, Token>,
}

impl View<'_> {
    pub(super) fn record(&self, row: &Row) -> Record {
        let id = &row.message.id;
        let token = match self.tables.deliveries.get(id) {
            Some(delivery) => delivery.claim,
            None => self.in_flight.get(id).copied(),
        };
        self.tables.record_under(row, token)
    }
}

impl Tables {
    pub(super) fn view(&self) -> View<'_> {
        View { tables: self, in_flight: self.in_flight() }
    }

    pub(super) fn record(&self, row: &Row) -> Record {
        self.record_under(row, self.holder(row))
    }

    /// Under which claim a message is held.
    pub(super) fn holder(&self, row: &Row) -> Option<Token> {
        match self.deliveries.get(&row.message.id) {
            Some(delivery) => delivery.claim,
            None => self.holder_in_parcel(row),
        }
    }

    /// CLAIMED, by whom and since when, follow from the claim.
    fn record_under(&self, row: &Row, token: Option<Token>) -> Record {
        let claim = token.and_then(|token| self.claims.get(&token));
        Record {
            message: row.message.clone(),
            status: if token.is_some() { "CLAIMED".to_owned() } else { row.status.clone() },
            locked_at: claim.map(|claim| claim.since),
            locked_by: claim.map(|claim| claim.worker.clone()),
            updated_at: row.updated_at,
            sent_at: row.sent_at,
            last_error: row.last_error.clone(),
        }
    }
}
