//! Real services started privately, contract suites and faults for Postroom's own tests.
//!
//! * [`Postgres`] and [`MariaDb`] give each test a database on a real server.
//! * [`PgBouncer`] stands between a test and PostgreSQL; [`Authority`] makes certificates.
//! * [`Kafka`], [`Mosquitto`], [`Nats`], [`RabbitMq`] and [`Redis`] are servers that sinks deliver to.
//! * [`Receiver`] is an HTTP endpoint that records what arrives and misbehaves on demand.
//! * [`Proxy`] stands between two programs and breaks their connections.
//! * [`Moto`] stands in for Amazon's services, [`PubSub`] is Google's own emulator.
//! * [`Smtp`] is a mail server that answers as a test asks.
//! * [`python_with`] and [`node_with`] bring packages of other languages; [`Bullmq`] is npm's.
//! * [`Process`] runs a program that can be signalled and killed.
//! * [`eventually`] waits for a condition; [`skip`] records a test that cannot run here, and
//!   [`OrSkip`] ends one for which something is not installed.

mod authority;
mod bullmq;
mod cache;
#[cfg(feature = "chaos")]
pub mod chaos;
pub mod contract;
mod eventually;
mod guarded;
mod kafka;
mod mariadb;
mod mosquitto;
mod moto;
mod nats;
mod packages;
mod pgbouncer;
mod postgres;
mod process;
mod programs;
mod proxy;
mod pubsub;
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
pub use guarded::free_port;
pub use kafka::{Kafka, KafkaPrograms, KafkaRecord, find_kafka};
pub use mariadb::{MariaDatabase, MariaDb, MariaDbPrograms, find_mariadb};
pub use mosquitto::{Mosquitto, find_mosquitto};
pub use moto::Moto;
pub use nats::{Nats, find_nats};
pub use packages::{node_with, python_with};
pub use pgbouncer::{PgBouncer, find_pgbouncer};
pub use postgres::{Frozen, Postgres, TestDatabase, find_postgres};
pub use process::{Process, Signal};
pub use programs::system_python;
pub use proxy::{Passage, Proxy};
pub use pubsub::PubSub;
pub use rabbitmq::{RabbitMq, find_rabbitmq};
#[cfg(feature = "kafka")]
pub use rdkafka;
pub use receiver::{Behaviour, Receiver, Request};
pub use redis::{Redis, find_redis};
pub use skip::{NotInstalled, OrSkip, skip};
pub use smtp::{Mail, Smtp, SmtpSecurity};
