//! `postroom messages watch`: what waits and how fast it goes, live.

use crate::args::Watch;
use crate::commands::each::{self, Answer, Named, each_open};
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align};
use chrono::Utc;
use postroom_core::{Arrived, Backlog, LaneBacklog, Store, StoreResult, with_causes};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};
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
    /// How many messages have left the outbox's deliveries per second since the look before.
    sent_per_second: Option<f64>,
}

pub(super) async fn run(args: &Watch, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    let answers = each_open(&databases, async |store| Ok((store, Before::default()))).await?;
    if answers.each.is_empty() {
        return answers.end();
    }
    if let Some(failed) = answers.failed() {
        eprintln!("not watched: {failed}");
    }
    let are_several = answers.are_several;
    let mut watched = answers.each;
    let mut ticks = tokio::time::interval(args.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let is_live = !args.json && io::stdout().is_terminal();
    let mut looks = 0;
    loop {
        ticks.tick().await;
        // A database that goes away is what one watches for: the next look tries again.
        let mut looks_at = Vec::with_capacity(watched.len());
        for Answer { name, found: (store, before) } in &mut watched {
            looks_at.push((name.as_deref(), before.look(&**store).await));
        }
        let shown = if args.json {
            as_json(&looks_at, are_several)?
        } else if is_live {
            // Back to the top, and over what was there: also over the names of the outboxes.
            let outboxes = databases.iter().map(|database| outbox::shown(&database.url));
            let outboxes = outboxes.collect::<Vec<_>>().join(", ");
            format!("\x1b[H\x1b[2Joutbox: {outboxes}\n{}", as_text(&looks_at))
        } else {
            as_text(&looks_at) + "\n"
        };
        if !output::print_live(&shown)? {
            return Ok(());
        }
        looks += 1;
        if args.count.is_some_and(|count| looks >= count) {
            return looks_at
                .into_iter()
                .try_for_each(|(_, looked)| looked.map(|_| ()).map_err(Failure::from));
        }
    }
}

/// What was there at the look before.
#[derive(Default)]
struct Before {
    at: Option<Instant>,
    lanes: HashMap<String, LaneBacklog>,
    /// The newest message.
    last_seq: i64,
}

impl Before {
    async fn look(&mut self, store: &dyn Store) -> StoreResult<Vec<Lane>> {
        if self.at.is_none() {
            self.last_seq = store.last_seq().await?;
        }
        let arrived = store.arrived(self.last_seq).await?;
        Ok(self.compare(store.backlog().await?, &arrived))
    }

    fn compare(&mut self, backlog: Backlog, arrived: &[Arrived]) -> Vec<Lane> {
        let now = Instant::now();
        let seconds = self.at.map(|at| now.duration_since(at).as_secs_f64());
        // A lane that has drained stays in view: lines that vanish are hard to read.
        let present: HashSet<String> =
            backlog.lanes.iter().map(|lane| lane.integration.clone()).collect();
        let known = self.lanes.keys().chain(arrived.iter().map(|lane| &lane.integration));
        let drained: BTreeSet<&String> = known.filter(|name| !present.contains(*name)).collect();
        let mut lanes: Vec<LaneBacklog> = drained.into_iter().map(|name| empty(name)).collect();
        lanes.extend(backlog.lanes);
        lanes.sort_by(|a, b| a.integration.cmp(&b.integration));
        let lanes: Vec<Lane> = lanes
            .into_iter()
            .map(|lane| {
                let was = self.lanes.get(&lane.integration);
                let change = waiting(&lane) as f64 - was.map_or(0.0, |was| waiting(was) as f64);
                let new = arrived.iter().find(|one| one.integration == lane.integration);
                // What came and is not there has been delivered. Transactions that commit out of
                // order can make that too little for one look, and never too much.
                let left = was.map_or(0, held) + new.map_or(0, |new| new.messages);
                let sent = left.saturating_sub(held(&lane)) as f64;
                Lane {
                    backlog: lane,
                    change_per_second: seconds.map(|seconds| change / seconds),
                    sent_per_second: seconds.map(|seconds| sent / seconds),
                }
            })
            .collect();
        self.at = Some(now);
        self.last_seq = arrived.iter().map(|lane| lane.last).fold(self.last_seq, i64::max);
        self.lanes = lanes
            .iter()
            .map(|lane| (lane.backlog.integration.clone(), lane.backlog.clone()))
            .collect();
        lanes
    }
}

/// Everything that has a delivery.
fn held(lane: &LaneBacklog) -> u64 {
    waiting(lane) + lane.dead
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

/// What was looked at, by the name of its database where there are several.
type Looked<'a> = (Option<&'a str>, StoreResult<Vec<Lane>>);

fn as_json(looks: &[Looked<'_>], are_several: bool) -> Result<String, Failure> {
    let at = output::time(Utc::now());
    let mut objects = looks.iter().map(|(name, looked)| {
        let object = match looked {
            Ok(lanes) => json!({ "at": at, "integrations": lanes }),
            Err(error) => json!({ "at": at, "error": with_causes(error) }),
        };
        Named { database: *name, object }
    });
    let line = if are_several {
        serde_json::to_string(&json!({ "at": at, "databases": objects.collect::<Vec<_>>() }))
    } else {
        serde_json::to_string(&objects.next())
    };
    let mut line = line.map_err(anyhow::Error::new)?;
    line.push('\n');
    Ok(line)
}

fn as_text(looks: &[Looked<'_>]) -> String {
    let mut text = format!("{}\n", output::time(Utc::now()));
    let mut table = each::table(looks.len() > 1).column("WAITING FOR", Align::Left);
    for title in ["PENDING", "CLAIMED", "FAILED", "DEAD", "LAG", "CHANGE", "SENT"] {
        table = table.column(title, Align::Right);
    }
    let mut is_empty = true;
    for (name, looked) in looks {
        let lanes = match looked {
            Ok(lanes) => lanes,
            Err(error) => {
                let place = name.map_or_else(String::new, |name| format!("{name}: "));
                text.push_str(&format!("{place}{}; trying again\n", with_causes(error)));
                continue;
            }
        };
        is_empty &= lanes.is_empty();
        for lane in lanes {
            table.row(each::row(*name, cells(lane)));
        }
    }
    if !is_empty {
        text.push_str(&output::rendered(&table));
    } else if looks.iter().any(|(_, looked)| looked.is_ok()) {
        text.push_str("nothing is waiting\n");
    }
    text
}

fn cells(lane: &Lane) -> Vec<String> {
    let Lane { backlog, change_per_second, sent_per_second } = lane;
    vec![
        backlog.integration.clone(),
        output::count(backlog.pending),
        output::count(backlog.claimed),
        output::count(backlog.failed),
        output::count(backlog.dead),
        output::span(backlog.lag_ms),
        change_per_second.map_or_else(String::new, change),
        sent_per_second.map_or_else(String::new, rate),
    ]
}

/// A change per second, with its sign.
fn change(per_second: f64) -> String {
    let sign = if per_second > 0.0 && rate(per_second) != "0/s" { "+" } else { "" };
    format!("{sign}{}", rate(per_second))
}

/// So many per second.
fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate.abs() < 0.05 => "0/s".to_owned(),
        rate if rate.abs() < 10.0 => format!("{rate:.1}/s"),
        rate => format!("{rate:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign_and_no_noise() {
        assert_eq!(change(0.01), "0/s");
        assert_eq!(change(-2.5), "-2.5/s");
        assert_eq!(change(1234.4), "+1234/s");
        assert_eq!(rate(1234.4), "1234/s");
    }

    #[test]
    fn a_lane_that_drains_stays_in_view() {
        let mut before = Before::default();
        let lane = LaneBacklog { pending: 10, ..empty("noop") };
        let first = before.compare(Backlog { lanes: vec![lane] }, &[]);
        assert!(first[0].change_per_second.is_none() && first[0].sent_per_second.is_none());
        let drained = before.compare(Backlog::default(), &[]);
        assert!(drained[0].change_per_second.is_some_and(|change| change < 0.0));
        assert!(drained[0].sent_per_second.is_some_and(|sent| sent > 0.0));
        let still = before.compare(Backlog::default(), &[]);
        assert_eq!(still.len(), 1, "as long as someone watches");
        assert_eq!(still[0].sent_per_second, Some(0.0));
    }

    #[test]
    fn what_comes_and_goes_between_two_looks_counts_and_what_dies_does_not() {
        let mut before = Before::default();
        let lane = LaneBacklog { pending: 4, ..empty("noop") };
        before.compare(Backlog { lanes: vec![lane] }, &[]);
        let arrived = [Arrived { integration: "noop".to_owned(), messages: 6, last: 10 }];
        // Ten in all, of which three wait and two are dead.
        let lane = LaneBacklog { failed: 3, dead: 2, ..empty("noop") };
        let looked = before.compare(Backlog { lanes: vec![lane] }, &arrived);
        let (sent, change) = (looked[0].sent_per_second, looked[0].change_per_second);
        let ratio = sent.unwrap() / change.unwrap();
        assert!((ratio + 5.0).abs() < 1e-6, "five were sent while one wait ended: {ratio}");
        assert_eq!(before.last_seq, 10);
    }
}
