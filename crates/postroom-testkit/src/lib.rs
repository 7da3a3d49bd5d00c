//! Real services started privately, contract suites and faults for Postroom's own tests.
//!
//! * [`Postgres`] gives each test a database on a real server.
//! * [`Receiver`] is an HTTP endpoint that records what arrives and misbehaves on demand.
//! * [`Proxy`] stands before any other server and breaks its connections.
//! * [`Process`] runs a program that can be signalled and killed.
//! * [`eventually`] waits for a condition; [`skip`] records a test that cannot run here.

pub mod contract;
mod eventually;
mod postgres;
mod process;
mod proxy;
mod receiver;
pub mod sink_contract;
mod skip;

pub use eventually::eventually;
pub use postgres::{Postgres, TestDatabase, find_postgres};
pub use process::{Process, Signal};
pub use proxy::{Link, Proxy};
pub use receiver::{Behaviour, Receiver, Request};
pub use skip::skip;
