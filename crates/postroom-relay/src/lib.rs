//! The relay: a pipeline with bounded hand-overs, every stage its own file.
//!
//! ```text
//! wake (NOTIFY | poll) → claimer → lane → sink.deliver(batch) → completer → store
//!                 heartbeat · rescuer · recorder · pruner · reconciler · monitor
//! ```
//!
//! Another transport delivers beside it, by the same rules: [`judge`] decides, [`Pauses`] holds a
//! lane back, [`Metrics`] counts, and [`ExternalLanes`] shows its lanes.
//!
//! [`Fleet`] runs a relay for each of several databases, over shared [`Destinations`].
//!
//! The relay sees the [`Store`](postroom_core::Store) and [`Sink`](postroom_core::Sink) traits,
//! never a driver.

mod attempt;
mod background;
mod claim_registry;
mod claimer;
mod completer;
mod deadline;
mod destinations;
mod external_lanes;
mod fleet;
mod health;
mod heartbeat;
mod jitter;
mod lane;
mod metrics;
mod monitor;
mod pauses;
mod polling;
mod pruner;
mod reconciler;
mod recorder;
mod refused;
mod relay;
mod rescuer;
mod responses;
mod room;
mod schema;
mod set_aside;
mod settings;
mod stop;
mod summary;
mod turns;
mod vanished;
mod verdict;

/// The documentation's page on a relay in a test, compiled as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sinks/memory.md")]
struct InATest;

pub use deadline::{DeadlineStore, Deadlines};
pub use destinations::Destinations;
pub use external_lanes::ExternalLanes;
pub use fleet::{Fleet, Open, Source};
pub use health::{DatabaseHealth, Health, LaneHealth, LaneState, Observed, problem};
pub use heartbeat::{Holder, Member, Presence};
pub use jitter::Jitter;
pub use metrics::{JobOutcome, Metrics, Phase};
pub use pauses::{Pauses, Probe};
pub use polling::{Backoff, Heat};
pub use relay::{Pass, Relay, RelayError};
pub use responses::keep_responses;
pub use settings::{Lane, Settings};
pub use vanished::{PAUSED as PAUSED_BY_VANISHED, warn as warn_of_vanished};
pub use verdict::{dead, judge, log_fate, panicked, unanswered};
