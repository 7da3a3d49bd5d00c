//! The seam to the outbox on a database, split by capability.
//!
//! One contract suite (`postroom-testkit`) runs over every implementation.

mod admin;
mod claims;
mod dispatch;
mod error;
mod inspect;
mod intake;
mod operate;
mod relays;
mod upkeep;

pub use admin::{
    ATTEMPTS_KEPT, Admin, Attempt, AttemptOutcome, Filter, RESPONSE_BYTES, StatusCounts,
};
pub use claims::{
    Batch, Claims, ContentFault, Fate, Fence, PARCEL_MESSAGES, Quota, Rescued, Settled, Settlement,
    Take, Taken, Token, Tried, Vanished, Verdict, Wake, rows_after,
};
pub use dispatch::{Dispatched, Dispatches};
pub use error::{StoreError, StoreErrorKind, StoreResult};
pub use inspect::{Arrived, ErrorGroup, Inspect};
pub use intake::{Checkpoint, Enqueued, Intake, POSITION_BYTES};
pub use operate::{Action, ActionId, CANCELLED, Key, NewAction, Operate, Operation, REPLAY_HEADER};
pub use relays::{Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays};
pub use upkeep::{Backlog, Finding, LaneBacklog, Reconciled, Severity, Upkeep};

/// The whole outbox on one database.
pub trait Store:
    Intake + Claims + Relays + Dispatches + Upkeep + Admin + Inspect + Operate
{
}

impl<T: Intake + Claims + Relays + Dispatches + Upkeep + Admin + Inspect + Operate> Store for T {}
