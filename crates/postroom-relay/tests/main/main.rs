//! The relay as its users meet it: real stores, sinks that misbehave, databases that go away.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod attempts;
mod bounds;
mod content;
mod database;
mod dead_letter;
mod fleet;
mod lanes;
mod locked;
mod locked_tables;
mod outbox;
mod poison;
mod refusal;
mod refused_messages;
mod schema;
mod script;
mod simulation;
mod stop;
mod summary;
mod tick;
