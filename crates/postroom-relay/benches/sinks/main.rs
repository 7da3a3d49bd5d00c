//! `cargo xtask bench sinks`: what a sink behind the relay costs over its bare client library.
//!
//! A figure is a file: it starts what it delivers to, says how the bare library does the same,
//! and leaves the measuring to `against`.

#[path = "../bench/figure.rs"]
mod figure;

mod against;
mod webhook;

use std::env;

fn main() -> anyhow::Result<()> {
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted("webhook") {
        runtime.block_on(webhook::run())?;
    }
    Ok(())
}
