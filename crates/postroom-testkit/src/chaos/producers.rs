//! Those who commit, those who roll back, and what they remember of it.

use super::Chaos;
use super::books::{Books, Written};
use super::database::{Ended, Outbox, Producer};
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const PRODUCERS: usize = 4;
/// The most messages in one transaction.
const TRANSACTION_MAX: usize = 40;
/// How many transactions are rolled back.
const ROLLED_BACK: f64 = 0.1;
const PAUSE: Duration = Duration::from_millis(20);
/// How long a producer waits for an answer. Longer than SQLite's wait for other writers.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long producers may take for the rest, once no fault strikes any more.
const FINISH_MAX: Duration = Duration::from_secs(300);

/// How many messages may have been written by now. It opens with every fault, so that each strikes
/// while there is work, instead of all being done before the first.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicUsize);

impl Gate {
    pub(super) fn open(&self, messages: usize) {
        self.0.store(messages, Ordering::Release);
    }

    fn is_open(&self, written: usize) -> bool {
        written < self.0.load(Ordering::Acquire)
    }
}

pub(super) struct Producers(JoinSet<()>);

impl Producers {
    pub(super) fn start(
        chaos: &Chaos,
        outbox: &Arc<dyn Outbox>,
        books: &Arc<Books>,
        gate: &Arc<Gate>,
    ) -> Self {
        let left = Arc::new(Left { total: chaos.messages, taken: AtomicUsize::new(0) });
        let mut producers = JoinSet::new();
        for number in 0..PRODUCERS {
            let worker = Worker {
                number,
                outbox: Arc::clone(outbox),
                books: Arc::clone(books),
                gate: Arc::clone(gate),
                left: Arc::clone(&left),
                rng: StdRng::seed_from_u64(chaos.seed.wrapping_mul(31).wrapping_add(number as u64)),
            };
            producers.spawn(worker.run());
        }
        Self(producers)
    }

    /// Waits until everything is produced.
    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        let all = async {
            while let Some(ended) = self.0.join_next().await {
                ended.context("a producer ended unexpectedly")?;
            }
            anyhow::Ok(())
        };
        let ended = timeout(FINISH_MAX, all).await;
        ended.with_context(|| format!("producers were not done after {FINISH_MAX:?}"))?
    }
}

/// The numbers that are still to be given to messages.
struct Left {
    total: usize,
    taken: AtomicUsize,
}

impl Left {
    fn take(&self, most: usize) -> Vec<String> {
        let first = self.taken.fetch_add(most, Ordering::AcqRel);
        (first..(first + most).min(self.total)).map(|n| format!("event-{n}")).collect()
    }
}

struct Worker {
    number: usize,
    outbox: Arc<dyn Outbox>,
    books: Arc<Books>,
    gate: Arc<Gate>,
    left: Arc<Left>,
    rng: StdRng,
}

impl Worker {
    async fn connect(&self) -> anyhow::Result<Box<dyn Producer>> {
        timeout(ANSWER_MAX, self.outbox.producer(self.number)).await?
    }

    async fn run(mut self) {
        let mut producer: Option<Box<dyn Producer>> = None;
        loop {
            let taken = self.left.taken.load(Ordering::Acquire);
            if taken < self.left.total && !self.gate.is_open(taken) {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let event_ids = self.left.take(self.rng.random_range(1..=TRANSACTION_MAX));
            if event_ids.is_empty() {
                return;
            }
            let commits = !self.rng.random_bool(ROLLED_BACK);
            let ended = loop {
                let connected = match producer.take() {
                    Some(producer) => Ok(producer),
                    None => self.connect().await,
                };
                let Ok(mut connected) = connected else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let transaction = connected.transact(&event_ids, commits);
                let answered = timeout(ANSWER_MAX, transaction).await.ok();
                // Without an answer the commit may have been asked for, or not.
                let silent = if commits { Ended::Unknown } else { Ended::Nothing };
                let ended = answered.unwrap_or(silent);
                if answered.is_some() && (ended == Ended::Committed || !commits) {
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
            self.books.write(event_ids, written);
        }
    }
}
