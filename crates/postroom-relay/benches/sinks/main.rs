//! `cargo xtask bench sinks`: what a sink behind the relay costs over its bare client library.
//!
//! A figure is a file: it starts what it delivers to, says how the bare library does the same,
//! and leaves the measuring to `against`.

#[path = "../bench/figure.rs"]
mod figure;
#[path = "../bench/size.rs"]
mod size;

mod against;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod rabbitmq;
mod redis;
mod webhook;

use postroom_testkit::{NotInstalled, skip};
use size::Size;
use std::env;
use std::future::Future;
use std::pin::Pin;

/// As the `postroom` command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;
type Run = fn(Size) -> Running;

/// Every figure.
const FIGURES: &[(&str, Run)] = &[
    ("webhook", |size| Box::pin(webhook::run(size))),
    #[cfg(feature = "kafka")]
    ("kafka", |size| Box::pin(kafka::run(size))),
    ("nats", |size| Box::pin(nats::run(size))),
    ("rabbitmq", |size| Box::pin(rabbitmq::run(size))),
    ("redis", |size| Box::pin(redis::run(size))),
];

fn main() -> anyhow::Result<()> {
    let size = Size::asked_for();
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (name, run) in FIGURES {
        if only.as_deref().is_none_or(|only| only == *name) {
            match runtime.block_on(run(size)) {
                Err(error) if error.is::<NotInstalled>() => {
                    skip(&format!("bench sinks: {name}"), &format!("{error:#}"));
                }
                measured => measured?,
            }
        }
    }
    Ok(())
}
