//! Faults, drawn by seed and spread over the run.

use super::database::{DatabaseFault, Outbox};
use super::producers::Gate;
use super::relays::{CLAIM_TIME, RELAYS, Relays};
use crate::{Behaviour, Receiver};
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a fault waits for messages to arrive before it strikes anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests are reset after their work, each time.
const RESETS: usize = 200;

/// What strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    KillRelay,
    PauseRelay,
    ReceiverDown,
    ReceiverSlow,
    ReceiverResets,
    Database(DatabaseFault),
}

impl Fault {
    /// What can happen whatever the database.
    const EVERYWHERE: [Self; 5] = [
        Self::KillRelay,
        Self::PauseRelay,
        Self::ReceiverDown,
        Self::ReceiverSlow,
        Self::ReceiverResets,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillRelay => "relay killed",
            Self::PauseRelay => "relay paused",
            Self::ReceiverDown => "receiver down",
            Self::ReceiverSlow => "receiver slow",
            Self::ReceiverResets => "receiver resets",
            Self::Database(fault) => fault.name(),
        }
    }
}

/// When a fault struck.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) what: &'static str,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

pub(super) struct Striker {
    rng: StdRng,
    faults: Vec<Fault>,
    outbox: Arc<dyn Outbox>,
    receiver: Arc<Receiver>,
    pub(super) relays: Relays,
    pub(super) windows: Vec<Window>,
}

impl Striker {
    pub(super) fn new(
        seed: u64,
        count: usize,
        outbox: &Arc<dyn Outbox>,
        receiver: &Arc<Receiver>,
        relays: Relays,
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let faults = draw(&mut rng, count, outbox.faults());
        let (outbox, receiver) = (Arc::clone(outbox), Arc::clone(receiver));
        Self { rng, faults, outbox, receiver, relays, windows: Vec::new() }
    }

    /// Strikes one fault after the other. With each, its share of `messages` is let through the
    /// gate, and it strikes once some of them have arrived.
    pub(super) async fn strike(&mut self, messages: usize, gate: &Gate) -> anyhow::Result<()> {
        let faults = std::mem::take(&mut self.faults);
        let share = messages / (faults.len() + 1);
        for (number, fault) in faults.into_iter().enumerate() {
            if let Fault::Database(fault) = fault {
                let name = fault.name();
                self.outbox.prepare(fault).await.with_context(|| format!("preparing {name}"))?;
            }
            let due = Instant::now() + PATIENCE;
            let arrived = self.receiver.count();
            gate.open(share * (number + 1));
            while self.receiver.count() < arrived + share / 4 && Instant::now() < due {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let began = Instant::now();
            self.one(fault).await.with_context(|| format!("the fault {}", fault.name()))?;
            eprintln!(
                "{:>4} {:<21} {:>6.1} s, {} requests so far",
                number + 1,
                fault.name(),
                began.elapsed().as_secs_f64(),
                self.receiver.count()
            );
            self.windows.push(Window { what: fault.name(), began, ended: Instant::now() });
        }
        gate.open(messages);
        Ok(())
    }

    async fn one(&mut self, fault: Fault) -> anyhow::Result<()> {
        let relay = self.rng.random_range(0..RELAYS);
        let while_it_lasts = Duration::from_millis(self.rng.random_range(100..1_500));
        match fault {
            Fault::KillRelay => self.relays.kill(relay),
            Fault::PauseRelay => {
                self.relays.pause(relay, CLAIM_TIME + Duration::from_secs(1)).await;
            }
            Fault::Database(fault @ (DatabaseFault::LockRows | DatabaseFault::LockDatabase)) => {
                // Some of them for longer than a claim lasts, and than SQLite itself waits.
                self.outbox.strike(fault, while_it_lasts * 4).await?;
            }
            Fault::Database(fault) => self.outbox.strike(fault, while_it_lasts).await?,
            Fault::ReceiverDown => {
                self.receiver.refuse();
                tokio::time::sleep(while_it_lasts).await;
                self.receiver.listen();
            }
            Fault::ReceiverSlow => {
                // Longer than the relay waits for an answer.
                self.receiver.always(Behaviour::RespondSlowly(Duration::from_millis(2_500)));
                tokio::time::sleep(while_it_lasts).await;
                self.receiver.always(Behaviour::Accept);
            }
            Fault::ReceiverResets => {
                let resets = std::iter::repeat_n(Behaviour::ResetAfterWork, RESETS);
                self.receiver.next(resets);
                tokio::time::sleep(while_it_lasts / 3).await;
            }
        }
        Ok(())
    }
}

/// Every kind equally often, in an order that the seed gives.
fn draw(rng: &mut StdRng, count: usize, of_database: &[DatabaseFault]) -> Vec<Fault> {
    let of_database = of_database.iter().copied().map(Fault::Database);
    let kinds: Vec<Fault> = Fault::EVERYWHERE.into_iter().chain(of_database).collect();
    let mut faults: Vec<Fault> = kinds.into_iter().cycle().take(count).collect();
    faults.shuffle(rng);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_faults_and_every_kind_strikes() {
        let of_database = [DatabaseFault::Crash, DatabaseFault::HalfOpen];
        let of = |seed| draw(&mut StdRng::seed_from_u64(seed), 50, &of_database);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let kinds = Fault::EVERYWHERE.into_iter().chain(of_database.map(Fault::Database));
        for fault in kinds {
            assert!(of(1).contains(&fault), "{fault:?}");
        }
        let elsewhere = Fault::Database(DatabaseFault::KillNode);
        assert!(!of(1).contains(&elsewhere), "what cannot happen to a database does not");
    }
}
