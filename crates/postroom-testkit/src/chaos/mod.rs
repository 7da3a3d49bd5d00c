//! Faults strike while known messages are produced and delivered; then the books are compared.
//!
//! Producers commit messages (some roll back), relays in processes of their own deliver them to a
//! recording receiver, and faults strike by seed. In the end, as in Jepsen's checker for queues:
//! nothing committed may be lost, nothing unexpected may appear; duplicates are counted, and each
//! must be explained by a fault.

mod books;
mod database;
mod faults;
mod galera;
mod half_open;
mod mariadb;
mod postgres;
mod producers;
mod relays;
mod sqlite;

pub use books::{Balance, Duplicates};
pub use database::Database;

use anyhow::{Context as _, bail};
use books::{Arrival, Books};
use database::Outbox;
use faults::Striker;
use producers::{Gate, Producers};
use relays::Relays;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nothing may be delivered before the run counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// How many messages are produced, those that roll back included.
    pub messages: usize,
    /// How many faults strike.
    pub faults: usize,
    /// Which faults, in which order, and what the producers do.
    pub seed: u64,
    /// Where the outbox is.
    pub database: Database,
    /// The program `postroom`.
    pub postroom: PathBuf,
}

impl Chaos {
    /// Runs it and compares the books.
    ///
    /// # Errors
    /// When something that is no part of the game cannot be started, or nothing moves any more:
    /// the books then say nothing.
    pub async fn run(&self) -> anyhow::Result<Balance> {
        let started = Instant::now();
        let outbox: Arc<dyn Outbox> = self.database.start(&self.postroom).await?;
        let receiver = Arc::new(crate::Receiver::start());
        let relays = Relays::start(&self.postroom, &*outbox, &receiver.url())?;
        let books = Arc::new(Books::default());
        let gate = Arc::new(Gate::default());
        let producers = Producers::start(self, &outbox, &books, &gate);
        let mut striker = Striker::new(self.seed, self.faults, &outbox, &receiver, relays);
        striker.strike(self.messages, &gate).await?;
        producers.finish().await?;
        drain(&*outbox, &receiver).await?;
        striker.relays.stop().await?;
        let arrivals =
            receiver.requests().iter().map(Arrival::of).collect::<Result<Vec<_>, _>>()?;
        let mut balance = books.compare(&arrivals, &striker.windows, &outbox.present().await?);
        balance.seed = self.seed;
        balance.database = self.database.name();
        balance.seconds = started.elapsed().as_secs_f64();
        Ok(balance)
    }
}

/// Waits until the outbox has nothing left to deliver.
async fn drain(outbox: &dyn Outbox, receiver: &crate::Receiver) -> anyhow::Result<()> {
    let (mut last, mut moved) = (receiver.count(), Instant::now());
    loop {
        let left = outbox.left().await;
        if matches!(left, Ok(0)) {
            return Ok(());
        }
        if receiver.count() != last {
            (last, moved) = (receiver.count(), Instant::now());
        }
        if moved.elapsed() > STUCK {
            let left = left.context("looking at what is left")?;
            bail!("{left} messages are left, and nothing has arrived for {STUCK:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
