//! The proof: what was committed against what arrived.

use super::ledger::Ledger;
use crate::output::count;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the demo shows at its end.
pub(super) struct Proof {
    pub(super) figures: Figures,
    rolled_back: u64,
    /// Orders that arrived although they were rolled back.
    phantoms: u64,
    /// Still in the outbox, because the demo was stopped early.
    waiting: u64,
}

/// The figures for programs.
#[derive(Serialize)]
pub(super) struct Figures {
    committed: u64,
    delivered: u64,
    duplicates: u64,
    retries: u64,
    dead: u64,
    lost: u64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Proof {
    /// Compares the books. `waiting` messages are still in the outbox.
    pub(super) fn draw(ledger: &Ledger, waiting: u64) -> Self {
        let (mut committed, mut delivered, mut duplicates, mut phantoms) = (0, 0, 0, 0);
        let mut latencies = Vec::new();
        for order in ledger.read() {
            duplicates += u64::from(order.receipts.saturating_sub(1));
            match (order.committed, order.received) {
                (Some(_), Some(_)) => delivered += 1,
                (None, Some(_)) => phantoms += 1,
                _ => {}
            }
            committed += u64::from(order.committed.is_some());
            latencies.extend(order.latency());
        }
        latencies.sort_unstable();
        let dead = ledger.dead.load(Ordering::Relaxed);
        let figures = Figures {
            committed,
            delivered,
            duplicates,
            retries: ledger.retries.load(Ordering::Relaxed),
            dead,
            // A message that arrived may wait all the same, for an answer that was lost.
            lost: committed.saturating_sub(delivered).saturating_sub(dead).saturating_sub(waiting),
            p50_ms: percentile(&latencies, 50),
            p99_ms: percentile(&latencies, 99),
        };
        let rolled_back = ledger.rolled_back.load(Ordering::Relaxed);
        Self { figures, rolled_back, phantoms, waiting }
    }

    /// Whether everything is where it should be.
    pub(super) fn holds(&self) -> bool {
        self.figures.lost == 0 && self.phantoms == 0
    }

    pub(super) fn describe(&self) -> String {
        let Figures { committed, delivered, duplicates, retries, dead, lost, p50_ms, p99_ms } =
            &self.figures;
        let arrived = match self.phantoms {
            0 => "none of them arrived".to_owned(),
            n => format!("{} of them arrived all the same", count(n)),
        };
        let mut lines = vec![
            ("committed", count(*committed), "orders, each with its message".to_owned()),
            ("rolled back", count(self.rolled_back), arrived),
            ("delivered", count(*delivered), String::new()),
            ("duplicates", count(*duplicates), "recognised by their event id".to_owned()),
            ("retries", count(*retries), String::new()),
            ("dead", count(*dead), String::new()),
            ("lost", count(*lost), String::new()),
            (
                "latency p50",
                format!("{} ms", count(p50_ms.round() as u64)),
                "commit to receipt".to_owned(),
            ),
            (
                "latency p99",
                format!("{} ms", count(p99_ms.round() as u64)),
                "the receiver's outages included".to_owned(),
            ),
        ];
        if self.waiting > 0 {
            lines.insert(
                3,
                ("waiting", count(self.waiting), "stopped before they were through".to_owned()),
            );
        }
        let mut text = String::new();
        for (name, figure, remark) in lines {
            let _ = writeln!(text, "{}", format!("{name:<12} {figure:>10}   {remark}").trim_end());
        }
        text
    }
}

/// The latency that this share of all stays below, in milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    let millis = sorted.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e3);
    (millis * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latencies: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert!((percentile(&latencies, 50) - 100.0).abs() < 1e-9);
        assert!((percentile(&latencies, 99) - 198.0).abs() < 1e-9);
        assert!(percentile(&[], 99).abs() < 1e-9);
    }

    #[test]
    fn an_order_that_never_arrived_is_lost_and_one_that_was_rolled_back_must_not_arrive() {
        let ledger = Ledger::new(3, "run".to_owned());
        for _ in 0..3 {
            ledger.begin();
        }
        ledger.commit(0);
        ledger.commit(1);
        ledger.receive("run-0");
        ledger.receive("run-0");
        let proof = Proof::draw(&ledger, 0);
        assert_eq!((proof.figures.duplicates, proof.figures.lost), (1, 1));
        assert!(!proof.holds());
        assert!(Proof::draw(&ledger, 1).holds(), "what waits is not lost");
        ledger.receive("run-1");
        assert!(Proof::draw(&ledger, 0).holds());
        ledger.receive("run-2");
        assert!(!Proof::draw(&ledger, 0).holds());
    }
}
