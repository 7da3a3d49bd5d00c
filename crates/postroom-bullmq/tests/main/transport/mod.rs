//! From the outbox through a queue and back.

mod amiss;
mod aside;
mod closing;
mod connections;
mod defects;
mod dispatching;
mod entering;
mod external;
mod faulty;
mod holding;
mod keeping;
mod marking;
pub(crate) mod outbox;
mod reopened;
mod rerouted;
mod sharing;
mod switching;
mod tenants;
mod truth;
mod working;
