//! Figures as one JSON object per line on standard output, and for people on standard error.

use serde_json::{Value, json};

/// One figure, measured in rounds of ours and its reference one after the other.
pub(crate) struct Figure {
    pub(crate) bench: &'static str,
    pub(crate) name: &'static str,
    /// Ours and the reference, round by round.
    pub(crate) rounds: Vec<(f64, f64)>,
    pub(crate) reference_is: &'static str,
    pub(crate) unit: &'static str,
    /// Whether a larger number is better.
    pub(crate) more_is_better: bool,
    /// What else the figure needs.
    pub(crate) notes: Value,
}

impl Figure {
    /// Above 1: ours is better. The median of the rounds' own ratios, since a noisy machine
    /// slows both sides of a round alike.
    fn ratio(&self) -> f64 {
        let better = |(ours, reference): &(f64, f64)| {
            if self.more_is_better { ours / reference } else { reference / ours }
        };
        median(self.rounds.iter().map(better).collect())
    }

    pub(crate) fn print(&self) {
        let round = |n: f64| (n * 1_000.0).round() / 1_000.0;
        let ours = median(self.rounds.iter().map(|(ours, _)| *ours).collect());
        let reference = median(self.rounds.iter().map(|(_, reference)| *reference).collect());
        println!(
            "{}",
            json!({
                "bench": self.bench,
                "figure": self.name,
                "ours": round(ours),
                "reference": round(reference),
                "ratio": round(self.ratio()),
                "unit": self.unit,
                "reference_is": self.reference_is,
                "rounds": self.rounds.len(),
                "notes": self.notes,
            })
        );
        eprintln!(
            "{:<8} {:<16} ours {ours:>11.2}  reference {reference:>11.2}  ratio {:>6.3}  {}  (reference: {})",
            self.bench,
            self.name,
            self.ratio(),
            self.unit,
            self.reference_is
        );
    }
}

/// The middle of some values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
