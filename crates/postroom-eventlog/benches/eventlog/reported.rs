//! Figures without a reference.

use serde_json::{Value, json};

/// Prints one, in the form of the others.
pub(crate) fn report(name: &str, value: f64, unit: &str, notes: &Value) {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    println!(
        "{}",
        json!({
            "bench": "eventlog",
            "figure": name,
            "ours": rounded,
            "reference": null,
            "ratio": null,
            "unit": unit,
            "notes": notes,
        })
    );
    eprintln!("eventlog {name:<16} {value:>16.2}  {unit}");
}
