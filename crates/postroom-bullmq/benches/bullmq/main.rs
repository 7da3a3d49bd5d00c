//! `cargo xtask bench bullmq`: our queue layer against npm's `bullmq`, on the same Redis, and the
//! whole way from the outbox through it.
//!
//! Both sides add the same jobs in calls of the same size, and run them with the same options;
//! rounds alternate. The reference is one Node process that lives through all rounds, so that it
//! is as warm as a server would be.

#[path = "../../../postroom-relay/benches/bench/figure.rs"]
mod figure;
#[path = "../../../postroom-relay/benches/bench/size.rs"]
mod size;

mod ours;
mod outbox;
mod reference;
mod server;

use anyhow::Context as _;
use figure::Figure;
use ours::Ours;
use reference::Reference;
use serde_json::json;
use server::{Measured, Server};
use size::Size;
use std::env;

/// Jobs per call, and how many calls are under way at once.
const CALL: usize = 500;
const CALLS: usize = 4;
/// How many jobs run at once.
const CONCURRENCY: usize = 50;

fn main() -> anyhow::Result<()> {
    let size = Size::asked_for();
    let jobs = size.pick(30_000, 1_000);
    let only = env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(jobs).await?;
        if only.as_deref() == Some("outbox") {
            return print_outbox(&server, size).await;
        }
        let ours = Ours::new(&server);
        let mut reference = Reference::start(&server)?;
        let (mut adds, mut consumed) = (Vec::new(), Vec::new());
        // The first round is not counted: both sides and Redis warm up.
        for round in 0..=size.pick(5, 1) {
            let by_us = (ours.add(&server).await?, ours.consume(&server).await?);
            let by_node = (reference.add(&server).await?, reference.consume(&server).await?);
            if round > 0 {
                adds.push((by_us.0, by_node.0));
                consumed.push((by_us.1, by_node.1));
            }
        }
        for (name, rounds) in [("adds", adds), ("consumed", consumed)] {
            if wanted(name) {
                print(name, jobs, &rounds);
            }
        }
        if wanted("outbox") {
            print_outbox(&server, size).await?;
        }
        Ok(())
    })
}

/// The whole way, from the outbox and back.
async fn print_outbox(server: &Server, size: Size) -> anyhow::Result<()> {
    let url = env::var("DATABASE_URL").context("`cargo xtask bench bullmq` sets DATABASE_URL")?;
    let messages = size.pick(20_000, 500);
    let mut rounds = Vec::new();
    for round in 0..=size.pick(3, 1) {
        let measured = outbox::round(&url, server, messages).await?;
        if round > 0 {
            rounds.push(measured);
        }
    }
    Figure {
        bench: "bullmq",
        name: "outbox",
        rounds,
        reference_is: "direct delivery to noop from the same PostgreSQL",
        unit: "messages/s",
        more_is_better: true,
        notes: json!({"messages": messages}),
    }
    .print();
    Ok(())
}

fn print(name: &'static str, jobs: usize, rounds: &[(Measured, Measured)]) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (values[values.len() / 2] * 100.0).round() / 100.0
    };
    let cpu = |of: fn(&(Measured, Measured)) -> f64| median(rounds.iter().map(of).collect());
    Figure {
        bench: "bullmq",
        name,
        rounds: rounds.iter().map(|(ours, theirs)| (ours.per_second, theirs.per_second)).collect(),
        reference_is: "npm bullmq 6 in one Node process, on the same Redis",
        unit: "jobs/s",
        more_is_better: true,
        notes: json!({
            "jobs": jobs,
            "jobs_per_call": CALL,
            "calls_at_once": CALLS,
            "concurrency": CONCURRENCY,
            "redis_cpu_us_per_job": cpu(|round| round.0.redis_cpu_us),
            "redis_cpu_us_per_job_reference": cpu(|round| round.1.redis_cpu_us),
        }),
    }
    .print();
}
