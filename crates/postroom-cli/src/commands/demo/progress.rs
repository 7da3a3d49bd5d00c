//! How far the demo is, on standard error.

use super::ledger::Ledger;
use crate::output::count;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const LIVE: Duration = Duration::from_millis(100);
const LINES: Duration = Duration::from_secs(2);

/// Shows progress until it is stopped.
pub(super) struct Progress {
    stop: watch::Sender<bool>,
    showing: JoinHandle<()>,
}

impl Progress {
    pub(super) fn start(ledger: Arc<Ledger>, up: watch::Receiver<bool>, messages: u64) -> Self {
        let live = io::stderr().is_terminal();
        eprintln!(
            "A shop commits {} orders, each with its message in the same transaction. A relay\n\
             delivers them to a receiver that fails, dawdles, and goes away twice. Ctrl-C ends it.\n",
            count(messages)
        );
        let (stop, mut stopped) = watch::channel(false);
        let showing = tokio::spawn(async move {
            loop {
                let pause = if live { LIVE } else { LINES };
                tokio::select! {
                    () = tokio::time::sleep(pause) => show(&ledger, *up.borrow(), live),
                    _ = stopped.changed() => break,
                }
            }
            if live {
                // The last state stays above the proof.
                show(&ledger, *up.borrow(), live);
                eprintln!("\n");
            }
        });
        Self { stop, showing }
    }

    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.showing.await;
    }
}

fn show(ledger: &Ledger, up: bool, live: bool) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (committed, delivered) = (read(&ledger.committed), read(&ledger.delivered));
    let line = format!(
        "committed {}   delivered {}   on their way {}   retries {}   receiver {}",
        count(committed),
        count(delivered),
        count(committed.saturating_sub(delivered)),
        count(read(&ledger.retries)),
        if up { "up" } else { "AWAY" },
    );
    let mut stderr = io::stderr().lock();
    // Nobody reading the progress is no reason to stop.
    let _ = if live { write!(stderr, "\r{line}\x1b[K") } else { writeln!(stderr, "{line}") };
    let _ = stderr.flush();
}
