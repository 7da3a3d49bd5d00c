//! The log on a disk that loses its power, by seed.
//!
//! Each seed lives several lives. In each, writers append, delete, cut and scavenge until the power
//! goes at some write or sync; the disk then forgets what was not synced, or any sectors of it. The
//! next life must find what had been acknowledged, as it was.

mod books;
mod damage;

use crate::disk::simulated::{Dice, SimulatedDisk};
use crate::{AppendError, EventLog, ExpectedRevision, METADATA_TYPE, NewEvent, Settings};
use books::Books;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 1_000;
const LIVES: u64 = 4;
const STEPS: u64 = 30;

fn settings() -> Settings {
    Settings { segment_size: 3_000, ..Settings::default() }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_with_the_power() {
    if let Ok(seed) = std::env::var("POSTROOM_SEED") {
        run(seed.parse().unwrap(), SimulatedDisk::default());
        return;
    }
    let next = AtomicU64::new(1);
    let losses = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > SEEDS {
                        return;
                    }
                    losses.fetch_add(run(seed, SimulatedDisk::default()), Ordering::Relaxed);
                }
            });
        }
    });
    let losses = losses.into_inner();
    // A life that ends before the power goes is one, too; few should.
    assert!(losses > SEEDS, "the power went {losses} times only");
}

/// A disk that fails now and then, as a full one does, and a process that goes on.
#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_disk_fails_now_and_then() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in 1..=SEEDS / 10 {
        runtime.block_on(async {
            let mut dice = Dice::new(seed);
            let mut books = Books::new(seed);
            let disk = SimulatedDisk::default();
            for life in 0..LIVES {
                let log = EventLog::open_on(Arc::new(disk.clone()), settings())
                    .unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                books.compare(&log, life).await;
                for _ in 0..3 {
                    disk.fail_once_after(dice.roll(100));
                    // Whatever fails, the rest of this life goes on.
                    let _ = work(&log, &mut dice, &mut books).await;
                }
                disk.fail_once_after(u64::MAX);
                log.close().await;
            }
        });
    }
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_noticed() {
    let noticed = |seed| catch_unwind(AssertUnwindSafe(|| run(seed, SimulatedDisk::lying())));
    assert!((1..=20).any(|seed| noticed(seed).is_err()));
}

fn run(seed: u64, disk: SimulatedDisk) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(live(seed, disk))
}

/// Lives all lives of a seed; says how often the power went while something was done.
async fn live(seed: u64, mut disk: SimulatedDisk) -> u64 {
    let mut dice = Dice::new(seed);
    let mut books = Books::new(seed);
    let mut losses = 0;
    for life in 0..LIVES {
        // The last life is only there to look.
        let is_last = life + 1 == LIVES;
        if !is_last {
            disk.lose_power_after(20 + dice.roll(400));
        }
        if let Ok(log) = EventLog::open_on(Arc::new(disk.clone()), settings()) {
            books.compare(&log, life).await;
            let ended = if is_last { Ok(()) } else { work(&log, &mut dice, &mut books).await };
            losses += u64::from(ended.is_err());
            log.close().await;
        } else {
            assert!(!is_last, "seed {seed}: it does not open: {:?}", reason(&disk));
            losses += 1;
        }
        disk = disk.after_loss_of_power(&mut dice);
    }
    losses
}

fn reason(disk: &SimulatedDisk) -> Option<String> {
    EventLog::open_on(Arc::new(disk.clone()), settings()).err().map(|error| error.to_string())
}

/// Works until the power goes, or there was enough.
async fn work(log: &EventLog, dice: &mut Dice, books: &mut Books) -> Result<(), AppendError> {
    for _ in 0..STEPS {
        match dice.roll(12) {
            0 => {
                let metadata = format!("{{\"$maxCount\":{}}}", 1 + dice.roll(4));
                let event = NewEvent::json(METADATA_TYPE, metadata);
                log.append("$$cut-1", ExpectedRevision::Any, vec![event]).await?;
            }
            // It ends with the power, like everything.
            1 => drop(log.scavenge().await),
            2 => drop(log.reader().index.flush()),
            3 => {
                let deleted = log.delete("cut-2", ExpectedRevision::Any).await;
                if let Err(error @ AppendError::Unavailable(_)) = deleted {
                    return Err(error);
                }
            }
            4 => {
                let ended = log.tombstone("ended-1", ExpectedRevision::Any).await;
                if let Err(error @ AppendError::Unavailable(_)) = ended {
                    return Err(error);
                }
            }
            // What nobody knows the end of is asked for again, as clients do.
            5 => {
                if let Some((stream, events)) = books.unknown(dice) {
                    let again = log.append(&stream, ExpectedRevision::Any, events.clone()).await?;
                    books.acknowledged(&stream, &events, again);
                }
            }
            _ => {
                // Some at once, so that they share a sync.
                let count = 1 + dice.roll(4);
                let planned: Vec<_> = (0..count).map(|_| books.plan(dice)).collect();
                let appends = planned
                    .iter()
                    .map(|(stream, events)| {
                        log.append(stream, ExpectedRevision::Any, events.clone())
                    })
                    .collect::<Vec<_>>();
                let done = futures_util::future::join_all(appends).await;
                let mut failed = None;
                for ((stream, events), appended) in planned.iter().zip(done) {
                    match appended {
                        Ok(appended) => books.acknowledged(stream, events, appended),
                        // Its stream was ended.
                        Err(AppendError::StreamDeleted) => books.forget(events),
                        Err(error) => failed = Some(error),
                    }
                }
                if let Some(error) = failed {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
