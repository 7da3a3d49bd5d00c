//! The whole relay on the store in memory, under virtual time and a seeded generator: crashes,
//! pauses, outages, sinks that misbehave, several relays at once.
//!
//! A seed is a [`Plan`](plan::Plan): what is produced, who relays it, what breaks and when.
//! [`world`] runs it; [`books`] knows, beside the store and independently of it, what must be
//! true, and checks every step. Safety is checked at each of them; liveness at the end: once
//! nothing breaks any more, everything drains.

mod books;
mod destination;
mod journal;
mod link;
mod plan;
mod weather;
mod world;

use journal::Journal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SEEDS: u64 = 2_000;

/// What became of one seed.
struct Outcome {
    violations: Vec<String>,
    journal: Journal,
}

/// Runs one seed, on a runtime of its own whose time is virtual.
fn simulate(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(world::run(seed))
}

/// `POSTROOM_SEED` replays one seed and prints what happened; otherwise all are run.
#[test]
fn every_seed_keeps_its_promises() {
    if let Ok(seed) = std::env::var("POSTROOM_SEED") {
        return replay(seed.parse().expect("POSTROOM_SEED is a number"));
    }
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= SEEDS {
                    return failed;
                }
                if let Some(violation) = simulate(seed).violations.into_iter().next() {
                    failed.push((seed, violation));
                }
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    failed.sort();
    eprintln!("{SEEDS} seeds in {:.1} s", started.elapsed().as_secs_f64());
    let Some((seed, violation)) = failed.first() else { return };
    panic!("{} of {SEEDS} seeds failed; the first: {violation}\n{}", failed.len(), command(*seed));
}

/// A seed that fails must fail again when it is looked at.
#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        let (first, second) = (simulate(seed).journal, simulate(seed).journal);
        if let Some((a, b)) = first.difference(&second) {
            panic!("seed {seed} took two ways:\n  {a}\n  {b}");
        }
        assert!(first.len() > 20, "seed {seed} does something");
    }
}

/// What the seeds cover: a simulation in which nothing happens would pass too.
#[test]
fn the_seeds_reach_what_they_are_for() {
    let mut journal = Journal::default();
    for seed in 0..200 {
        journal.append(simulate(seed).journal);
    }
    for wanted in [
        "crash",
        "stop",
        "pause",
        "outage",
        "silence",
        "sent",
        "failed",
        "dead",
        "released",
        "late",
        "rescued",
        "lost alone",
        "told lost",
        "given up",
        "left",
        "panics",
        "refuses",
        "stalls",
        "kills",
        "repeats",
        "announced",
        "duplicate",
    ] {
        assert!(journal.counts().contains_key(wanted), "no {wanted}: {:?}", journal.counts());
    }
}

fn replay(seed: u64) {
    let Outcome { violations, journal } = simulate(seed);
    eprint!("{journal}");
    eprintln!("{:#?}", plan::Plan::of(seed));
    assert!(violations.is_empty(), "{violations:#?}\n{}", command(seed));
}

fn command(seed: u64) -> String {
    format!(
        "replay it with: POSTROOM_SEED={seed} cargo test -p postroom-relay --test main \
         simulation::every_seed -- --nocapture"
    )
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
