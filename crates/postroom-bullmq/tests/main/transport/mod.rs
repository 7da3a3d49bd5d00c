//! From the outbox through a queue and back.

mod dispatching;
mod external;
mod outbox;
mod sharing;
mod working;
