//! From the outbox through a queue and back.

mod dispatching;
mod external;
mod holding;
mod leasing;
mod outbox;
mod sharing;
mod truth;
mod working;
