//! Postroom's words and contracts. Nothing here does I/O.
//!
//! * [`NewMessage`] is what an application enqueues, [`Message`] what a relay has taken.
//! * [`Sink`] delivers batches and reports an [`Outcome`] per message.
//! * [`Store`] is the outbox on one database: [`Intake`], [`Claims`], [`Relays`], [`Dispatches`], [`Upkeep`],
//!   [`Admin`], [`Inspect`] and [`Operate`] joined.
//! * [`RetryPolicy`] says when a failed message is due again, and when it is dead.

mod announcement;
mod clock;
mod error_text;
mod host_list;
mod json;
mod ledger_schema;
mod message;
mod message_id;
mod new_message;
mod outcome;
mod retry;
mod sink;
mod status;
mod store;

pub use announcement::{DEAD_EVENT_TYPE, announce_dead};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error_text::{ERROR_TEXT_CHARS, clip_error, clip_response, with_causes};
pub use host_list::url_per_host;
pub use json::{JsonFault, RawJson};
pub use ledger_schema::{ledger_database, ledger_schema};
pub use message::{Message, Record};
pub use message_id::{IdPrefix, MESSAGE_ID_BYTES, MessageId, MessageIdError};
pub use new_message::{Field, Limits, MessageError, NewMessage};
pub use outcome::Outcome;
pub use retry::{AttemptLimit, RetryPolicy};
pub use sink::{OutcomeReceiver, ProbeError, Report, Sink};
pub use status::Status;
pub use store::{
    ATTEMPTS_KEPT, Action, ActionId, Admin, Arrived, Attempt, AttemptOutcome, Backlog, Batch,
    CANCELLED, Checkpoint, Claims, ContentFault, Dispatched, Dispatches, Enqueued, ErrorGroup,
    Fate, Fence, Filter, Finding, Heartbeat, Inspect, Intake, Key, LaneBacklog, NewAction, Operate,
    Operation, PARCEL_MESSAGES, POSITION_BYTES, Quota, RELAY_KEPT, REPLAY_HEADER, RESPONSE_BYTES,
    Reconciled, RelayId, RelayRow, Relays, Rescued, Settled, Settlement, Severity, StatusCounts,
    Store, StoreError, StoreErrorKind, StoreResult, Take, Taken, Token, Tried, Upkeep, Vanished,
    Verdict, Wake, rows_after,
};
