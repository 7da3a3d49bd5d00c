//! The seam to the outbox on a database, split by capability.
//!
//! One contract suite (`postroom-testkit`) runs over every implementation.

mod admin;
mod claims;
mod dispatch;
mod error;
mod inspect;
mod operate;
mod upkeep;

pub use admin::{
    ATTEMPTS_KEPT, Admin, Attempt, AttemptOutcome, Enqueued, Filter, RESPONSE_BYTES, StatusCounts,
};
pub use claims::{
    Batch, Claims, ContentFault, Fate, Fence, Quota, Settled, Settlement, Take, Taken, Token,
    Tried, Verdict, Wake,
};
pub use dispatch::{Dispatched, Dispatches};
pub use error::{StoreError, StoreErrorKind, StoreResult};
pub use inspect::{Arrived, ErrorGroup, Inspect};
pub use operate::{Action, ActionId, CANCELLED, Key, NewAction, Operate, Operation, REPLAY_HEADER};
pub use upkeep::{Backlog, Finding, LaneBacklog, Reconciled, Severity, Upkeep};

/// The whole outbox on one database.
pub trait Store: Claims + Dispatches + Upkeep + Admin + Inspect + Operate {}

impl<T: Claims + Dispatches + Upkeep + Admin + Inspect + Operate> Store for T {}
