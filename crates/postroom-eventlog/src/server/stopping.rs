//! How a server stops, whatever its clients do.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// How far a server has come with stopping.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    /// No new connections.
    Stopping,
    /// Streams of messages end.
    EndStreams,
    /// Requests that have no answer yet get one.
    EndRequests,
    /// Connections are closed.
    Close,
}

/// When each phase begins, after the one before. Appends that are under way have their answers by
/// then, unless the disk is slow.
const PHASES: [(Duration, Phase); 3] = [
    (Duration::from_millis(200), Phase::EndStreams),
    (Duration::from_millis(1_800), Phase::EndRequests),
    (Duration::from_millis(1_000), Phase::Close),
];

/// Tells how far the server has come.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(watch::Receiver<Phase>);

/// Leads the server from phase to phase.
#[derive(Debug)]
pub(crate) struct Stop(watch::Sender<Phase>);

impl Stop {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Running))
    }

    pub(crate) fn stopping(&self) -> Stopping {
        Stopping(self.0.subscribe())
    }

    /// Goes through all phases.
    pub(crate) async fn run(&self) {
        self.0.send_replace(Phase::Stopping);
        for (time, phase) in PHASES {
            sleep(time).await;
            self.0.send_replace(phase);
        }
    }
}

impl Drop for Stop {
    /// A server whose future is dropped leaves nothing behind.
    fn drop(&mut self) {
        self.0.send_replace(Phase::Close);
    }
}

impl Stopping {
    /// Returns once the server has come as far as this.
    pub(crate) fn reached(&self, phase: Phase) -> impl Future<Output = ()> + Send + use<> {
        let mut receiver = self.0.clone();
        async move {
            // The sender is gone only after its last phase.
            let _ = receiver.wait_for(|reached| *reached >= phase).await;
        }
    }
}
