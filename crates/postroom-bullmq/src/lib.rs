//! The BullMQ transport: lanes that run through BullMQ queues on Redis.
//!
//! [`Transport`] is what a relay and a worker process run: it dispatches due messages of its
//! [`QueueLane`]s as jobs, runs those jobs or watches others run them, and settles with the outbox.
//!
//! # The queue layer
//! [`Redis`] says which server; [`Queue`] adds jobs, looks at them and removes them; [`Events`]
//! is what happened to them; [`Worker`] runs them. It speaks BullMQ's own layout, so that
//! producers and workers in Node (`bullmq` 5 and 6) and ours share a queue.
//!
//! What BullMQ's own client for Rust does well is left to it: fetching, finishing and delaying
//! jobs, recovering stalled ones, limiting rates. What it lacks or gets wrong is wrapped here:
//!
//! * [`Queue::add`] says of each job whether it is new, and keeps its data byte for byte.
//! * [`Queue::states`], [`Queue::finished`] and [`Queue::remove`] look at and remove many jobs
//!   at once.
//! * [`Events`] and [`Worker`] keep nothing that grows without a limit.
//! * A [`Worker`] survives panics, notices lost locks, finishes a job again when the network
//!   lost the first word of it, reconnects whatever the reason, and stops at once when idle.

mod error;
mod link;
mod queue;
mod server;
mod transport;
mod worker;

pub use error::QueueError;
pub use queue::{
    Added, Counts, Event, EventKind, Events, Finished, FinishedPage, JobState, NewJob, Position,
    Queue,
};
pub use server::{Redis, RedisConfig, RedisFault};
pub use transport::{
    Defect, Delivery, JobData, JobName, Part, QueueLane, QueuePattern, TenantRate, TenantRates,
    Transport, Workers,
};
pub use worker::{Health, Job, JobFailure, Processor, Rate, Worker, WorkerOptions};
