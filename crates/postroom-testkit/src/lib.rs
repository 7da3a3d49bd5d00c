//! Real services started privately, contract suites and faults for Postroom's own tests.
//!
//! * [`Postgres`], [`MariaDb`] and [`MySql`] give each test a database on a real server; [`Standby`]
//!   takes the place of the first, [`Galera`] is three of the second.
//! * [`Dump`] is a dump of a database on PostgreSQL.
//! * [`PgBouncer`] stands between a test and PostgreSQL; [`Authority`] makes certificates.
//! * [`Kafka`], [`Mosquitto`], [`Nats`], [`RabbitMq`] and [`Redis`] are servers that sinks deliver to;
//!   `KafkaCluster`, [`NatsCluster`], [`RedisCluster`] and [`RedisSentinel`] are several of their kind.
//! * [`Receiver`] is an HTTP endpoint that records what arrives and misbehaves on demand.
//! * [`Proxy`] stands between two programs and breaks their connections.
//! * [`Moto`] stands in for Amazon's services, [`PubSub`] is Google's own emulator.
//! * [`Smtp`] is a mail server that answers as a test asks.
//! * [`python_with`] and [`node_with`] bring packages of other languages; [`Bullmq`] is npm's, and
//!   [`KurrentDbClient`] are KurrentDB's official clients.
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
mod kurrentdb;
pub mod layout_contract;
mod living_relay;
mod mariadb;
mod mosquitto;
mod moto;
mod mysql;
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
mod redis_cluster;
mod redis_sentinel;
pub mod sink_contract;
mod skip;
mod smtp;
pub mod soak;
mod turn;
mod url;

pub use authority::{Authority, CertificateFiles};
pub use bullmq::Bullmq;
pub use cache::cache_folder;
pub use eventually::eventually;
pub use guarded::free_port;
#[cfg(feature = "kafka")]
pub use kafka::KafkaCluster;
pub use kafka::{Kafka, KafkaPrograms, KafkaRecord, find_kafka};
pub use kurrentdb::KurrentDbClient;
pub use living_relay::living_relay;
pub use mariadb::{Galera, MariaDatabase, MariaDb, MariaDbPrograms, find_galera, find_mariadb};
pub use mosquitto::{Mosquitto, find_mosquitto};
pub use moto::Moto;
pub use mysql::MySql;
pub use nats::{Nats, NatsCluster, find_nats};
pub use packages::{node_with, python_with};
pub use pgbouncer::{PgBouncer, find_pgbouncer};
pub use postgres::{Dump, Frozen, Postgres, Standby, TestDatabase, find_postgres};
pub use process::{Process, Signal};
pub use programs::{find_promtool, system_python};
pub use proxy::{Passage, Proxy};
pub use pubsub::PubSub;
pub use rabbitmq::{RabbitMq, find_rabbitmq};
#[cfg(feature = "kafka")]
pub use rdkafka;
pub use receiver::{Behaviour, Receiver, Request};
pub use redis::{Redis, find_redis};
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use skip::{NotInstalled, OrSkip, skip};
pub use smtp::{Mail, Smtp, SmtpSecurity};
