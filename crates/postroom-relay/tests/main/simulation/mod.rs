//! The whole relay on the store in memory, under virtual time and a seeded generator: crashes,
//! pauses, outages, sinks that misbehave, several relays at once.
//!
//! A seed is a [`Plan`](plan::Plan): what is produced, who relays it, what breaks and when.
//! [`world`] runs it; [`books`] knows, beside the store and independently of it, what must be
//! true, and [`ledger`] where each message may stand in the store; both check every step. Safety is
//! checked at each of them; liveness at the end: once nothing breaks any more, everything drains.

mod books;
mod destination;
mod journal;
mod ledger;
mod link;
mod plan;
mod weather;
mod world;

use journal::Journal;
use postroom_store::memory::Flaw;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::BROKEN_LAW;

/// How many seeds are run, unless `POSTROOM_SEEDS` says otherwise.
const SEEDS: u64 = 2_000;

/// What became of one seed.
struct Outcome {
    violations: Vec<String>,
    journal: Journal,
}

fn simulate(seed: u64) -> Outcome {
    simulate_with(seed, None)
}

/// Runs one seed, on a runtime of its own whose time is virtual.
fn simulate_with(seed: u64, flaw: Option<Flaw>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(world::run(seed, flaw))
}

/// `POSTROOM_SEED` replays one seed and prints what happened; otherwise all are run, from 0 to
/// `POSTROOM_SEEDS`.
#[test]
fn every_seed_keeps_its_promises() {
    if let Ok(seed) = std::env::var("POSTROOM_SEED") {
        return replay(seed.parse().expect("POSTROOM_SEED is a number"));
    }
    let seeds = std::env::var("POSTROOM_SEEDS");
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().expect("POSTROOM_SEEDS is a number"));
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
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
    eprintln!("{seeds} seeds in {:.1} s", started.elapsed().as_secs_f64());
    let Some((seed, violation)) = failed.first() else { return };
    panic!("{} of {seeds} seeds failed; the first: {violation}\n{}", failed.len(), command(*seed));
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
        "rolled back",
        "parcel of many",
        "swept",
        "unpacked",
        "both kinds",
    ] {
        assert!(journal.counts().contains_key(wanted), "no {wanted}: {:?}", journal.counts());
    }
}

/// Checks that find nothing wrong with a broken store would be worth nothing.
#[test]
fn a_store_that_settles_without_a_fence_is_found_out() {
    assert_found_out(Flaw::SettlesWithoutFence, &["its word was taken all the same"]);
}

/// The laws of the ledger see it before any message is delivered.
#[test]
fn a_sweep_that_ignores_the_claims_is_found_out_by_the_laws_of_the_ledger() {
    assert_found_out(Flaw::SweepIgnoresClaims, &[BROKEN_LAW, "claims"]);
}

/// Some of the first seeds must have a violation that says all of this, with a flaw in the store.
fn assert_found_out(flaw: Flaw, said: &[&str]) {
    let says_it = |violation: &String| said.iter().all(|part| violation.contains(part));
    let is_found_out = |seed| simulate_with(seed, Some(flaw)).violations.iter().any(says_it);
    assert!((0..200).any(is_found_out), "{flaw:?} went unnoticed");
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
