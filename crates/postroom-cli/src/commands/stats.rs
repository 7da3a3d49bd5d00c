//! `postroom stats`: how much is where.

use super::each::{Answers, each_open};
use super::outbox;
use crate::args::Show;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align};
use postroom_core::{Backlog, LaneBacklog, Status, StatusCounts, Store};
use serde_json::{Map, Value, json};

/// How much is in one outbox.
struct Stats {
    backlog: Backlog,
    counts: StatusCounts,
}

impl Stats {
    async fn of(store: &dyn Store) -> Result<Self, Failure> {
        Ok(Self { backlog: store.backlog().await?, counts: store.status_counts().await? })
    }

    /// By status. What is claimed follows from the deliveries; everything else is recorded.
    fn by_status(&self) -> [(Status, u64); 5] {
        let Self { backlog, counts } = self;
        [
            (Status::Pending, backlog.total(|lane| lane.pending)),
            (Status::Claimed, backlog.total(|lane| lane.claimed)),
            (Status::Sent, counts.of(Status::Sent)),
            (Status::Failed, backlog.total(|lane| lane.failed)),
            (Status::Dead, backlog.total(|lane| lane.dead)),
        ]
    }

    /// What says of itself that it is something else.
    fn unknown(&self) -> impl Iterator<Item = (&String, u64)> {
        // By the exact name: one in lower case is as unknown to a relay as any other.
        let is_known = |name: &str| Status::ALL.iter().any(|status| status.as_str() == name);
        let counts = self.counts.counts.iter().map(|(name, n)| (name, *n));
        counts.filter(move |(name, _)| !is_known(name))
    }

    fn as_json(&self) -> Value {
        let known = self.by_status().map(|(status, n)| (status.to_string(), json!(n)));
        let mut totals: Map<String, Value> = known.into_iter().collect();
        totals.extend(self.unknown().map(|(name, n)| (name.clone(), json!(n))));
        let lag = u64::try_from(self.backlog.lag().as_millis()).unwrap_or(u64::MAX);
        json!({ "counts": totals, "integrations": self.backlog.lanes, "lag_ms": lag })
    }
}

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    let stats = each_open(&databases, async |store| Stats::of(&*store).await).await?;
    if args.json {
        stats.print_objects(Stats::as_json)?;
    } else if !stats.each.is_empty() {
        print(&stats)?;
    }
    stats.end()
}

fn print(stats: &Answers<Stats>) -> Result<(), Failure> {
    let mut table = stats.table().column("STATUS", Align::Left).column("MESSAGES", Align::Right);
    for one in &stats.each {
        for (status, n) in one.found.by_status() {
            table.row(one.row(vec![status.to_string(), output::count(n)]));
        }
        for (name, n) in one.found.unknown() {
            table.row(one.row(vec![format!("{name} (unknown, left alone)"), output::count(n)]));
        }
    }
    output::print_table(&table)?;
    if stats.each.iter().all(|one| one.found.backlog.lanes.is_empty()) {
        return Ok(output::print("\nnothing is waiting\n")?);
    }
    output::print("\n")?;
    let mut table = stats.table().column("WAITING FOR", Align::Left);
    for title in ["PENDING", "CLAIMED", "FAILED", "DEAD", "LAG"] {
        table = table.column(title, Align::Right);
    }
    for one in &stats.each {
        for lane in &one.found.backlog.lanes {
            let LaneBacklog { integration, pending, claimed, failed, dead, lag_ms } = lane;
            table.row(one.row(vec![
                integration.clone(),
                output::count(*pending),
                output::count(*claimed),
                output::count(*failed),
                output::count(*dead),
                output::span(*lag_ms),
            ]));
        }
    }
    Ok(output::print_table(&table)?)
}
