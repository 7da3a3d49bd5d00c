//! From the outbox through a queue and back.

mod dispatching;
mod external;
mod holding;
mod outbox;
mod sharing;
mod tenants;
mod truth;
mod working;
