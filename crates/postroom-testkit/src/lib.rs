//! Real services started privately, contract suites and faults for Postroom's own tests.
//!
//! * [`Postgres`] gives each test a database on a real server.
//! * [`PgBouncer`] stands between a test and such a server; [`Authority`] makes certificates.
//! * [`Mosquitto`], [`Nats`], [`RabbitMq`] and [`Redis`] are servers that sinks deliver to.
//! * [`Receiver`] is an HTTP endpoint that records what arrives and misbehaves on demand.
//! * [`Proxy`] stands between two programs and breaks their connections.
//! * [`Process`] runs a program that can be signalled and killed.
//! * [`eventually`] waits for a condition; [`skip`] records a test that cannot run here.

mod authority;
#[cfg(feature = "chaos")]
pub mod chaos;
pub mod contract;
mod eventually;
mod guarded;
mod mosquitto;
mod nats;
mod pgbouncer;
mod postgres;
mod process;
mod programs;
mod proxy;
mod rabbitmq;
mod receiver;
mod redis;
pub mod sink_contract;
mod skip;

pub use authority::{Authority, CertificateFiles};
pub use eventually::eventually;
pub use mosquitto::{Mosquitto, find_mosquitto};
pub use nats::{Nats, find_nats};
pub use pgbouncer::{PgBouncer, find_pgbouncer};
pub use postgres::{Postgres, TestDatabase, find_postgres};
pub use process::{Process, Signal};
pub use programs::system_python;
pub use proxy::{Passage, Proxy};
pub use rabbitmq::{RabbitMq, find_rabbitmq};
pub use receiver::{Behaviour, Receiver, Request};
pub use redis::{Redis, find_redis};
pub use skip::skip;
