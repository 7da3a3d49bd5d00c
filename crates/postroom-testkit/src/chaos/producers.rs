//! Those who commit, those who roll back, and what they remember of it.

use super::Chaos;
use super::books::{Books, Written};
use super::database::{Ended, Outbox, Producer};
use crate::Receiver;
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const PRODUCERS: u64 = 4;
/// The most messages in one transaction.
const TRANSACTION_MAX: usize = 40;
/// How many transactions are rolled back.
const ROLLED_BACK: f64 = 0.1;
/// How far producers may be ahead: they go on until the last fault, instead of being done before
/// the first.
const AHEAD_MAX: usize = 2_000;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Producers(JoinSet<()>);

impl Producers {
    pub(super) fn start(
        chaos: &Chaos,
        outbox: &Arc<dyn Outbox>,
        books: &Arc<Books>,
        receiver: &Arc<Receiver>,
    ) -> Self {
        let left = Arc::new(Left {
            total: chaos.messages,
            taken: AtomicUsize::new(0),
            sent_on: AtomicUsize::new(0),
        });
        let mut producers = JoinSet::new();
        for number in 0..PRODUCERS {
            let worker = Worker {
                outbox: Arc::clone(outbox),
                books: Arc::clone(books),
                receiver: Arc::clone(receiver),
                left: Arc::clone(&left),
                rng: StdRng::seed_from_u64(chaos.seed.wrapping_mul(31).wrapping_add(number)),
            };
            producers.spawn(worker.run());
        }
        Self(producers)
    }

    /// Waits until everything is produced.
    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        while let Some(ended) = self.0.join_next().await {
            ended.context("a producer ended unexpectedly")?;
        }
        Ok(())
    }
}

/// The numbers that are still to be given to messages.
struct Left {
    total: usize,
    taken: AtomicUsize,
    /// Messages that may arrive.
    sent_on: AtomicUsize,
}

impl Left {
    fn take(&self, most: usize) -> Vec<String> {
        let first = self.taken.fetch_add(most, Ordering::AcqRel);
        (first..(first + most).min(self.total)).map(|n| format!("event-{n}")).collect()
    }
}

struct Worker {
    outbox: Arc<dyn Outbox>,
    books: Arc<Books>,
    receiver: Arc<Receiver>,
    left: Arc<Left>,
    rng: StdRng,
}

impl Worker {
    async fn run(mut self) {
        let mut producer: Option<Box<dyn Producer>> = None;
        loop {
            while self.left.sent_on.load(Ordering::Acquire) > self.receiver.count() + AHEAD_MAX {
                tokio::time::sleep(PAUSE).await;
            }
            let event_ids = self.left.take(self.rng.random_range(1..=TRANSACTION_MAX));
            if event_ids.is_empty() {
                return;
            }
            let commits = !self.rng.random_bool(ROLLED_BACK);
            let ended = loop {
                let connected = match producer.take() {
                    Some(producer) => Ok(producer),
                    None => self.outbox.producer().await,
                };
                let Ok(mut connected) = connected else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let ended = connected.transact(&event_ids, commits).await;
                if ended == Ended::Committed || !commits {
                    producer = Some(connected);
                }
                // What is known to have left nothing is simply done again.
                if ended != Ended::Nothing || !commits {
                    break ended;
                }
            };
            let written = match ended {
                Ended::Committed => Written::Committed,
                Ended::Nothing => Written::RolledBack,
                Ended::Unknown => Written::Unknown,
            };
            if written != Written::RolledBack {
                self.left.sent_on.fetch_add(event_ids.len(), Ordering::AcqRel);
            }
            self.books.write(event_ids, written);
        }
    }
}
