//! From the outbox through a queue and back.

mod closing;
mod dispatching;
mod external;
mod holding;
mod outbox;
mod reopened;
mod sharing;
mod truth;
mod working;
