//! The `postroom` command as its users meet it: separate processes, real files and sockets.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod command;
mod configuration;
mod demo;
mod relay;
mod tools;
mod usage;
