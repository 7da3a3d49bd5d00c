//! The ledger as it stands, for tests that check its laws from outside.

use super::MemoryStore;
use postroom_core::{MessageId, Token};

/// Everything that concerns who is to deliver what, at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ledger {
    /// The messages, by number.
    pub messages: Vec<MessageLook>,
    /// The parcels of fresh messages, by lane and number.
    pub parcels: Vec<ParcelLook>,
    /// The deliveries of everything else that is not SENT.
    pub deliveries: Vec<DeliveryLook>,
    /// The claims.
    pub claims: Vec<ClaimLook>,
    /// The messages of producers that have not committed yet.
    pub uncommitted: Vec<MessageId>,
    /// Messages that were changed by hand, which is still to be followed.
    pub pending_edits: Vec<MessageId>,
    /// How far each lane's parcels were taken.
    pub marks: Vec<(String, i64)>,
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MessageLook {
    /// Its id.
    pub id: MessageId,
    /// Its number.
    pub seq: i64,
    /// Its status, which is never CLAIMED.
    pub status: String,
    /// The token of the store's last write to it.
    pub settled: Option<Token>,
}

/// A parcel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParcelLook {
    /// Its lane and its number there.
    pub key: (String, i64),
    /// The messages that it names.
    pub ids: Vec<MessageId>,
}

/// A delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeliveryLook {
    /// Its message.
    pub id: MessageId,
    /// The claim that holds it.
    pub claim: Option<Token>,
}

/// A claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimLook {
    /// Its token.
    pub token: Token,
    /// The parcels that it names, by lane and number.
    pub parcels: Vec<(String, i64)>,
}

impl MemoryStore {
    /// The ledger at this moment. Meant for tests.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let tables = self.lock();
        let open = tables.uncommitted.values();
        Ledger {
            messages: tables
                .messages
                .values()
                .map(|row| MessageLook {
                    id: row.message.id.clone(),
                    seq: row.message.seq,
                    status: row.status.clone(),
                    settled: row.settled,
                })
                .collect(),
            parcels: tables
                .parcels
                .iter()
                .map(|(key, parcel)| ParcelLook { key, ids: parcel.clone() })
                .collect(),
            deliveries: tables
                .deliveries
                .iter()
                .map(|(id, delivery)| DeliveryLook { id: id.clone(), claim: delivery.claim })
                .collect(),
            claims: tables
                .claims
                .iter()
                .map(|(token, claim)| ClaimLook {
                    token: *token,
                    parcels: claim.parcels.iter().cloned().collect(),
                })
                .collect(),
            uncommitted: open
                .flat_map(|staged| &staged.rows)
                .map(|row| row.message.id.clone())
                .collect(),
            pending_edits: tables.pending_edits.iter().map(|edit| edit.id.clone()).collect(),
            marks: tables.cursors.iter().map(|(lane, one)| (lane.clone(), one.mark)).collect(),
        }
    }
}
