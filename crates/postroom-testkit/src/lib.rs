//! Real services started privately, contract suites and faults for Postroom's own tests.
//!
//! * [`Postgres`] and [`MariaDb`] give each test a database on a real server.
//! * [`PgBouncer`] stands between a test and PostgreSQL; [`Authority`] makes certificates.
//! * [`Postgres`] gives each test a database on a real server.
//! * [`PgBouncer`] stands between a test and such a server; [`Authority`] makes certificates.
//! * [`Mosquitto`], [`Nats`], [`RabbitMq`] and [`Redis`] are servers that sinks deliver to.
//! * [`Receiver`] is an HTTP endpoint that records what arrives and misbehaves on demand.
//! * [`Proxy`] stands between two programs and breaks their connections.
//! * [`Smtp`] is a mail server that answers as a test asks.
//! * [`python_with`] and [`node_with`] bring packages of other languages; [`Bullmq`] is npm's.
//! * [`Process`] runs a program that can be signalled and killed.
//! * [`eventually`] waits for a condition; [`skip`] records a test that cannot run here.

mod authority;
mod bullmq;
mod cache;
#[cfg(feature = "chaos")]
pub mod chaos;
pub mod contract;
mod eventually;
mod guarded;
mod mariadb;
mod mosquitto;
mod nats;
mod packages;
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
mod smtp;
pub mod soak;
mod url;

pub use authority::{Authority, CertificateFiles};
pub use bullmq::Bullmq;
pub use cache::cache_folder;
pub use eventually::eventually;
pub use mariadb::{MariaDatabase, MariaDb, MariaDbPrograms, find_mariadb};
pub use mosquitto::{Mosquitto, find_mosquitto};
pub use nats::{Nats, find_nats};
pub use packages::{node_with, python_with};
pub use pgbouncer::{PgBouncer, find_pgbouncer};
pub use postgres::{Postgres, TestDatabase, find_postgres};
pub use process::{Process, Signal};
pub use programs::system_python;
pub use proxy::{Passage, Proxy};
pub use rabbitmq::{RabbitMq, find_rabbitmq};
pub use receiver::{Behaviour, Receiver, Request};
pub use redis::{Redis, find_redis};
pub use skip::skip;
pub use smtp::{Mail, Smtp, SmtpSecurity};
