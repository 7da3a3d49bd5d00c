//! The `postroom` command as its users meet it: separate processes, real files and sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod administration;
mod adopted;
mod adopted_sqlite;
mod adopting;
mod chaos;
mod command;
mod configuration;
mod databases;
mod demo;
mod docs;
mod drain;
#[cfg(feature = "eventlog")]
mod eventlog;
#[cfg(feature = "eventlog")]
mod eventlog_crash;
mod faults_clock;
mod faults_database;
mod faults_databases;
mod faults_disk;
mod faults_failover;
mod faults_input;
mod faults_killed;
mod faults_locks;
mod faults_outage;
mod faults_outbox;
mod faults_pooler;
mod faults_producer;
mod faults_restore;
mod faults_secrets;
mod faults_silence;
mod faults_upgrade;
mod following;
mod laws;
mod log;
mod naming;
mod promtool;
mod recording;
mod relay;
mod responses;
mod through_bullmq;
mod tools;
mod upkeep;
mod usage;
mod which_outbox;
