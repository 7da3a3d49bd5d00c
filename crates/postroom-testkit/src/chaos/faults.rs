//! Faults, drawn by seed and spread over the run.

use super::database::Outbox;
use super::relays::{CLAIM_TIME, RELAYS, Relays};
use crate::{Behaviour, Receiver};
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a fault waits for its share of the messages before it strikes anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests are reset after their work, each time.
const RESETS: usize = 200;

/// What strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    KillRelay,
    PauseRelay,
    CrashDatabase,
    KillConnections,
    ReceiverDown,
    ReceiverSlow,
    ReceiverResets,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::KillRelay,
        Self::PauseRelay,
        Self::CrashDatabase,
        Self::KillConnections,
        Self::ReceiverDown,
        Self::ReceiverSlow,
        Self::ReceiverResets,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::KillRelay => "relay killed",
            Self::PauseRelay => "relay paused",
            Self::CrashDatabase => "database crashed",
            Self::KillConnections => "connections killed",
            Self::ReceiverDown => "receiver down",
            Self::ReceiverSlow => "receiver slow",
            Self::ReceiverResets => "receiver resets",
        }
    }

    fn needs_server(self) -> bool {
        matches!(self, Self::CrashDatabase | Self::KillConnections)
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
        let faults = draw(&mut rng, count, outbox.server().is_some());
        let (outbox, receiver) = (Arc::clone(outbox), Arc::clone(receiver));
        Self { rng, faults, outbox, receiver, relays, windows: Vec::new() }
    }

    /// Strikes one fault after the other, each when its share of `messages` has arrived.
    pub(super) async fn strike(&mut self, messages: usize) -> anyhow::Result<()> {
        let faults = std::mem::take(&mut self.faults);
        let share = messages / (faults.len() + 1);
        for (number, fault) in faults.into_iter().enumerate() {
            let due = Instant::now() + PATIENCE;
            while self.receiver.count() < share * (number + 1) && Instant::now() < due {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let began = Instant::now();
            self.one(fault).await.with_context(|| format!("the fault {}", fault.name()))?;
            eprintln!(
                "{:>4} {:<18} {:>6.1} s, {} requests so far",
                number + 1,
                fault.name(),
                began.elapsed().as_secs_f64(),
                self.receiver.count()
            );
            self.windows.push(Window { what: fault.name(), began, ended: Instant::now() });
        }
        Ok(())
    }

    async fn one(&mut self, fault: Fault) -> anyhow::Result<()> {
        let relay = self.rng.random_range(0..RELAYS);
        let while_it_lasts = Duration::from_millis(self.rng.random_range(100..1_500));
        let server = self.outbox.server();
        match fault {
            Fault::KillRelay => self.relays.kill(relay),
            Fault::PauseRelay => {
                self.relays.pause(relay, CLAIM_TIME + Duration::from_secs(1)).await;
            }
            Fault::CrashDatabase => {
                if let Some(server) = server {
                    server.crash().await?;
                    tokio::time::sleep(while_it_lasts).await;
                    server.restart().await?;
                }
            }
            Fault::KillConnections => {
                if let Some(server) = server {
                    server.kill_connections().await?;
                }
            }
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
fn draw(rng: &mut StdRng, count: usize, has_server: bool) -> Vec<Fault> {
    let kinds = Fault::ALL.into_iter().filter(|fault| has_server || !fault.needs_server());
    let mut faults: Vec<Fault> =
        kinds.collect::<Vec<_>>().into_iter().cycle().take(count).collect();
    faults.shuffle(rng);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_faults_and_every_kind_strikes() {
        let of = |seed, server| draw(&mut StdRng::seed_from_u64(seed), 50, server);
        assert_eq!(of(1, true), of(1, true));
        assert_ne!(of(1, true), of(2, true));
        for fault in Fault::ALL {
            assert!(of(1, true).contains(&fault));
            assert_eq!(of(1, false).contains(&fault), !fault.needs_server());
        }
    }
}
