//! `cargo xtask bench sinks`: what a sink behind the relay costs over its bare client library.
//!
//! A figure is a file: it starts what it delivers to, says how the bare library does the same,
//! and leaves the measuring to `against`.

#[path = "../bench/figure.rs"]
mod figure;

mod against;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod rabbitmq;
mod redis;
mod webhook;

use std::env;
use std::future::Future;
use std::pin::Pin;

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;
type Run = fn() -> Running;

/// Every figure.
const FIGURES: &[(&str, Run)] = &[
    ("webhook", || Box::pin(webhook::run())),
    #[cfg(feature = "kafka")]
    ("kafka", || Box::pin(kafka::run())),
    ("nats", || Box::pin(nats::run())),
    ("rabbitmq", || Box::pin(rabbitmq::run())),
    ("redis", || Box::pin(redis::run())),
];

fn main() -> anyhow::Result<()> {
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (name, run) in FIGURES {
        if only.as_deref().is_none_or(|only| only == *name) {
            runtime.block_on(run())?;
        }
    }
    Ok(())
}
