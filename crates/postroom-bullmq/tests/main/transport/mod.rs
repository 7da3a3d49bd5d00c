//! From the outbox through a queue and back.

mod aside;
mod broken_queue;
mod closing;
mod connections;
mod defects;
mod dispatching;
mod entering;
mod external;
mod faulty;
mod isolation;
mod keeping;
mod marking;
pub(crate) mod outbox;
mod recorded_outcomes;
mod reopened;
mod rerouted;
mod sharing;
mod switching;
mod tenants;
mod working;
