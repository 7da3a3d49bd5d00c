//! `postroom messages watch`: what waits, live.

use crate::args::Watch;
use crate::commands::outbox;
use crate::commands::stop::StopSignals;
use crate::config::Origin;
use crate::failure::{Failure, with_causes};
use crate::output::{self, Align, Table};
use chrono::Utc;
use postroom_core::{Backlog, LaneBacklog, StoreResult};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Instant;
use tokio::time::MissedTickBehavior;

/// One integration at one look.
#[derive(Serialize)]
struct Lane {
    #[serde(flatten)]
    backlog: LaneBacklog,
    /// How the number of messages that wait has changed per second since the look before.
    change_per_second: Option<f64>,
}

pub(super) async fn run(args: &Watch, origin: &Origin<'_>) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let store = outbox::open(&origin.database()?).await?;
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_live = !args.json && io::stdout().is_terminal();
    let mut before = Before::default();
    let mut looks = 0;
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            _ = ticks.tick() => {}
        }
        // A database that goes away is what one watches for: the next look tries again.
        let looked = tokio::select! {
            () = signals.next() => return Ok(()),
            looked = store.backlog() => looked.map(|backlog| before.compare(backlog)),
        };
        if args.json {
            output::print(&as_json(&looked)?)?;
        } else {
            let text = as_text(&looked);
            // Back to the top, and over what was there.
            output::print(&if is_live { format!("\x1b[H\x1b[2J{text}") } else { text + "\n" })?;
        }
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return looked.map(|_| ()).map_err(Failure::from);
        }
    }
}

/// What waited at the look before.
#[derive(Default)]
struct Before {
    at: Option<Instant>,
    waiting: HashMap<String, u64>,
}

impl Before {
    fn compare(&mut self, backlog: Backlog) -> Vec<Lane> {
        let now = Instant::now();
        let seconds = self.at.map(|at| now.duration_since(at).as_secs_f64());
        // A lane that has drained stays in view: lines that vanish are hard to read.
        let drained = self
            .waiting
            .keys()
            .filter(|name| backlog.lanes.iter().all(|lane| lane.integration != **name));
        let mut lanes: Vec<LaneBacklog> = drained.map(|name| empty(name)).collect();
        lanes.extend(backlog.lanes);
        lanes.sort_by(|a, b| a.integration.cmp(&b.integration));
        let lanes: Vec<Lane> = lanes
            .into_iter()
            .map(|lane| {
                let was = self.waiting.get(&lane.integration).copied().unwrap_or(0);
                let change = seconds.map(|s| (waiting(&lane) as f64 - was as f64) / s);
                Lane { backlog: lane, change_per_second: change }
            })
            .collect();
        self.at = Some(now);
        self.waiting = lanes
            .iter()
            .map(|lane| (lane.backlog.integration.clone(), waiting(&lane.backlog)))
            .collect();
        lanes
    }
}

/// What is still to be delivered; what is dead is not.
fn waiting(lane: &LaneBacklog) -> u64 {
    lane.pending + lane.claimed + lane.failed
}

fn empty(integration: &str) -> LaneBacklog {
    LaneBacklog {
        integration: integration.to_owned(),
        pending: 0,
        claimed: 0,
        failed: 0,
        dead: 0,
        lag_ms: 0,
    }
}

fn as_json(looked: &StoreResult<Vec<Lane>>) -> Result<String, Failure> {
    let at = output::time(Utc::now());
    let look = match looked {
        Ok(lanes) => serde_json::json!({ "at": at, "integrations": lanes }),
        Err(error) => serde_json::json!({ "at": at, "error": with_causes(error) }),
    };
    let mut line = serde_json::to_string(&look).map_err(anyhow::Error::new)?;
    line.push('\n');
    Ok(line)
}

fn as_text(looked: &StoreResult<Vec<Lane>>) -> String {
    let at = output::time(Utc::now());
    let lanes = match looked {
        Ok(lanes) if lanes.is_empty() => return format!("{at}\nnothing is waiting\n"),
        Ok(lanes) => lanes,
        Err(error) => return format!("{at}\n{}; trying again\n", with_causes(error)),
    };
    let mut table = Table::new().column("WAITING FOR", Align::Left);
    for title in ["PENDING", "CLAIMED", "FAILED", "DEAD", "LAG", "CHANGE"] {
        table = table.column(title, Align::Right);
    }
    for Lane { backlog, change_per_second } in lanes {
        table.row(vec![
            backlog.integration.clone(),
            output::count(backlog.pending),
            output::count(backlog.claimed),
            output::count(backlog.failed),
            output::count(backlog.dead),
            output::span(backlog.lag_ms),
            change_per_second.map_or_else(String::new, rate),
        ]);
    }
    format!("{at}\n{}", output::rendered(&table))
}

/// A change per second, with its sign.
fn rate(per_second: f64) -> String {
    match per_second {
        change if change.abs() < 0.05 => "0/s".to_owned(),
        change if change.abs() < 10.0 => format!("{change:+.1}/s"),
        change => format!("{change:+.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_sign_and_no_noise() {
        assert_eq!(rate(0.0), "0/s");
        assert_eq!(rate(-2.5), "-2.5/s");
        assert_eq!(rate(1234.4), "+1234/s");
    }

    #[test]
    fn a_lane_that_drains_stays_in_view() {
        let mut before = Before::default();
        let lane = LaneBacklog { pending: 10, ..empty("noop") };
        let first = before.compare(Backlog { lanes: vec![lane] });
        assert!(first[0].change_per_second.is_none());
        let drained = before.compare(Backlog::default());
        assert!(drained[0].change_per_second.is_some_and(|change| change < 0.0));
        let still = before.compare(Backlog::default());
        assert_eq!(still.len(), 1, "as long as someone watches");
    }
}
