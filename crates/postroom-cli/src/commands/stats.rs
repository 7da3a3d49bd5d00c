//! `postroom stats`: how much is where.

use super::outbox;
use crate::args::Show;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use postroom_core::{LaneBacklog, Status};
use serde_json::{Map, Value, json};

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let backlog = store.backlog().await?;
    let counts = store.status_counts().await?;
    // What is claimed follows from the deliveries; everything else is recorded.
    let claimed = backlog.total(|lane| lane.claimed);
    let open = [
        (Status::Pending, backlog.total(|lane| lane.pending)),
        (Status::Claimed, claimed),
        (Status::Sent, counts.of(Status::Sent)),
        (Status::Failed, backlog.total(|lane| lane.failed)),
        (Status::Dead, backlog.total(|lane| lane.dead)),
    ];
    // By the exact name: one in lower case is as unknown to a relay as any other.
    let is_known = |name: &str| Status::ALL.iter().any(|status| status.as_str() == name);
    let unknown: Vec<_> = counts.counts.iter().filter(|(name, _)| !is_known(name)).collect();
    if args.json {
        let mut totals: Map<String, Value> =
            open.iter().map(|(status, n)| (status.to_string(), json!(n))).collect();
        totals.extend(unknown.iter().map(|(name, n)| (name.clone(), json!(n))));
        return Ok(output::print_json(&json!({
            "counts": totals,
            "integrations": backlog.lanes,
            "lag_ms": u64::try_from(backlog.lag().as_millis()).unwrap_or(u64::MAX),
        }))?);
    }

    let mut table = Table::new().column("STATUS", Align::Left).column("MESSAGES", Align::Right);
    for (status, n) in open {
        table.row(vec![status.to_string(), output::count(n)]);
    }
    for (name, n) in unknown {
        table.row(vec![format!("{name} (unknown, left alone)"), output::count(*n)]);
    }
    output::print_table(&table)?;
    if backlog.lanes.is_empty() {
        return Ok(output::print("\nnothing is waiting\n")?);
    }
    output::print("\n")?;
    let mut table = Table::new().column("WAITING FOR", Align::Left);
    for title in ["PENDING", "CLAIMED", "FAILED", "DEAD", "LAG"] {
        table = table.column(title, Align::Right);
    }
    for LaneBacklog { integration, pending, claimed, failed, dead, lag_ms } in &backlog.lanes {
        table.row(vec![
            integration.clone(),
            output::count(*pending),
            output::count(*claimed),
            output::count(*failed),
            output::count(*dead),
            output::span(*lag_ms),
        ]);
    }
    Ok(output::print_table(&table)?)
}
