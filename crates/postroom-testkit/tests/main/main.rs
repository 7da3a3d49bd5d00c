//! The test kit's own promises.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking; that is their job")]

mod postgres;
mod process;
mod proxy;
mod receiver;
mod skip;
