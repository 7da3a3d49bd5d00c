//! Being asked to stop.

use crate::failure::Failure;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means to a command.
#[derive(Clone, Copy)]
pub(super) enum OnSignal {
    /// It ends at once, whatever it is waiting for, and may not have finished.
    End,
    /// It ends at once, and has done what it was for.
    Done,
    /// It finishes the step under way by itself, and ends after this time or at a second signal.
    EndAfter(Duration),
    /// It stops by itself, in an order of its own.
    Handled,
}

/// Does `work` until it is done or a signal ends it.
///
/// # Errors
/// As `work`, or [`Failure::Interrupted`].
pub(super) async fn interruptible(
    on_signal: OnSignal,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let grace = match on_signal {
        OnSignal::End | OnSignal::Done => Duration::ZERO,
        OnSignal::EndAfter(grace) => grace,
        OnSignal::Handled => return work.await,
    };
    let mut signals = StopSignals::listen()?;
    let interrupted = async {
        let code = signals.next_code().await;
        if !grace.is_zero() {
            let _ = tokio::time::timeout(grace, signals.next()).await;
        }
        code
    };
    tokio::select! {
        // A command that stops by itself says more.
        biased;
        done = work => done,
        code = interrupted => match on_signal {
            OnSignal::Done => Ok(()),
            OnSignal::End | OnSignal::EndAfter(_) | OnSignal::Handled => {
                Err(Failure::Interrupted(code))
            }
        },
    }
}

/// SIGTERM and SIGINT. Made before the work begins, so that none is missed.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        self.next_code().await;
    }

    /// Waits for the next signal; the exit code that shells give to a program it ended.
    async fn next_code(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 128 + 15,
            _ = self.interrupt.recv() => 128 + 2,
        }
    }
}
